"""Standard output: JSON and tables."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

__all__ = ["add_json_flag", "print_json", "print_table"]

PIPE_WIDTH: Final = 240
"""Columns of a table that goes to a file or pipe, where nothing is to be wrapped."""


def add_json_flag(parser: ArgumentParser) -> None:
    """`--json`, the same for every command that has it."""
    parser.add_argument("--json", action="store_true", help="print JSON for programs")


def print_json(value: Any) -> None:
    """Indented JSON of structs and plain values."""
    print(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """A table as wide as the terminal."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(*columns)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    width = None if sys.stdout.isatty() else PIPE_WIDTH
    Console(file=sys.stdout, width=width).print(table)
