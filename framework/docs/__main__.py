"""`python -m framework.docs [--check]`, run in the root of a checkout."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from framework.docs.pages import differences, render_pages, write_pages
from hookspecs.errors import FrameworkError

__all__ = ["main"]

FOLDER: Final = Path("docs", "reference")


def main(argv: Sequence[str] | None = None) -> int:
    """Write the pages, or with `--check` name those that differ; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m framework.docs",
        description=f"Generate {FOLDER} from the contract and the installed built-in plugins.",
    )
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit with 1 if a page differs"
    )
    arguments = parser.parse_args(argv)
    if not FOLDER.parent.is_dir():
        parser.error(f"there is no folder {FOLDER.parent}; run this in the root of a checkout")
    try:
        pages = render_pages()
    except FrameworkError as error:
        print(f"framework.docs: error: {error}", file=sys.stderr)
        return 1
    if not arguments.check:
        for name in write_pages(pages, FOLDER):
            print(_shown(name))
        return 0
    wrong = differences(pages, FOLDER)
    for name in wrong:
        print(f"{_shown(name)} is not what the contract says", file=sys.stderr)
    if wrong:
        print("run: python -m framework.docs", file=sys.stderr)
    return 1 if wrong else 0


def _shown(name: str) -> str:
    return os.path.normpath(FOLDER / name)


if __name__ == "__main__":
    sys.exit(main())
