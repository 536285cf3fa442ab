"""All generated pages, and the folder that holds them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from framework.docs.builtins import builtin_plugins_page
from framework.docs.cli import cli_page
from framework.docs.config import config_page
from framework.docs.contracts import contract_pages, contracts_index
from framework.docs.control import control_page
from framework.docs.deprecations import deprecations_page
from framework.docs.errors import errors_page
from framework.docs.hooks import hooks_page
from framework.docs.overview import reference_index
from framework.docs.plugin_pages import plugin_pages
from framework.docs.types import types_page

__all__ = ["differences", "render_pages", "write_pages"]

ELSEWHERE: Final = ("kit-coverage.md",)
"""Pages of this folder that another program makes: from the mutants, which are tests."""


def render_pages() -> dict[str, str]:
    """Path, relative to `docs/reference`, to text; sorted by path."""
    pages = {
        "../control.md": control_page(),
        "builtin-plugins.md": builtin_plugins_page(),
        "cli.md": cli_page(),
        "config.md": config_page(),
        "contracts/index.md": contracts_index(),
        "deprecations.md": deprecations_page(),
        "errors.md": errors_page(),
        "hooks.md": hooks_page(),
        "index.md": reference_index(),
        "types.md": types_page(),
        **contract_pages(),
        **plugin_pages(),
    }
    return dict(sorted(pages.items()))


def differences(pages: Mapping[str, str], folder: Path) -> list[str]:
    """Paths of pages that are missing, differ, or should not be there; sorted."""
    there = [path.relative_to(folder).as_posix() for path in folder.rglob("*.md")]
    there = [name for name in there if name not in ELSEWHERE]
    wrong = [name for name, text in pages.items() if _text(folder / name) != text]
    return sorted([*wrong, *(name for name in there if name not in pages)])


def _text(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None


def write_pages(pages: Mapping[str, str], folder: Path) -> list[str]:
    """Make the folder hold exactly these pages; returns what was written or removed."""
    changed = differences(pages, folder)
    for name in changed:
        path = folder / name
        if name in pages:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(pages[name], encoding="utf-8")
        else:
            path.unlink()
    return changed
