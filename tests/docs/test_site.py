"""The site has every page once, and fetches nothing when it is read."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from typing import Any

from tests.docs.guide import ROOT

SITE = tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))["project"]


def pages_of(item: Any) -> Iterator[str]:
    """Paths in the navigation."""
    if isinstance(item, str):
        yield item
    else:
        for each in item.values() if isinstance(item, dict) else item:
            yield from pages_of(each)


def test_every_page_is_in_the_navigation_once() -> None:
    docs = ROOT / SITE["docs_dir"]
    there = sorted(page.relative_to(docs).as_posix() for page in docs.rglob("*.md"))
    assert sorted(pages_of(SITE["nav"])) == there


def test_no_font_and_no_script_is_fetched() -> None:
    assert SITE["theme"]["font"] is False
    fences = SITE["markdown_extensions"]["pymdownx.superfences"].get("custom_fences", [])
    assert fences == [], "a fence for mermaid has its script fetched from elsewhere"
