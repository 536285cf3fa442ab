"""Pages that built-in plugins add to the reference, found through their entry points.

A plugin object names them in `REFERENCE_PAGES`: path below `docs/reference` to the
`module:function` that makes the page. That returns blocks: Markdown, or a table as a pair of
column titles and rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from framework.docs.markdown import join, table
from framework.plugins.discovery import Source, discover
from framework.plugins.imports import load_object

__all__ = ["plugin_pages"]

Block = str | tuple[Sequence[str], Sequence[Sequence[str]]]


def plugin_pages() -> dict[str, str]:
    """Path to text, of all built-in plugins that are installed."""
    pages: dict[str, str] = {}
    for ref in discover():
        if ref.source is Source.BUILTIN:
            named: Mapping[str, str] = getattr(load_object(ref.value), "REFERENCE_PAGES", {})
            pages |= {path: _page(target) for path, target in named.items()}
    return pages


def _page(target: str) -> str:
    make: Any = load_object(target)
    blocks: Iterable[Block] = make()
    return join(block if isinstance(block, str) else table(*block) for block in blocks)
