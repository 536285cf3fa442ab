"""Tables in Markdown, and the same rows as JSON lines."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.machine import machine_kind, versions
from benchmarks.peers import add_peers_argument

__all__ = ["Table", "add_arguments"]


def add_arguments(parser: ArgumentParser, *, repeats: int, peers: bool = True) -> None:
    """The options that tables have: --repeats, --json, and --peers where there are some."""
    parser.add_argument(
        "--repeats", type=int, default=repeats, metavar="N", help=f"default {repeats}"
    )
    parser.add_argument("--json", metavar="FILE", help="append each row as a JSON line")
    if peers:
        add_peers_argument(parser)


class Table:
    """Prints its head at once, and rows as they come, so that a long run shows where it is."""

    def __init__(
        self,
        name: str,
        columns: Sequence[str],
        arguments: Namespace,
        *,
        peers: Mapping[str, str] | None = None,
    ) -> None:
        """`peers`: versions of the peers that take part, by name."""
        self.name = name
        self.columns = tuple(columns)
        self._path: str | None = arguments.json
        machine, installed = machine_kind(), {**versions(), **(peers or {})}
        self._facts = {"machine": machine, "versions": installed}
        told = ", ".join(f"{key} {value}" for key, value in installed.items())
        print(f"{machine}; {told}; median [min..max] of {arguments.repeats}")
        print()
        print(line(self.columns))
        print("|" + "---|" * len(self.columns), flush=True)

    def row(self, cells: Sequence[str], values: Mapping[str, Any]) -> None:
        """`cells` are for people; `values` go into the JSON line."""
        if len(cells) != len(self.columns):
            raise ValueError(
                f"{len(cells)} cells for the {len(self.columns)} columns of {self.name}"
            )
        print(line(cells), flush=True)
        if self._path is not None:
            record = {"table": self.name, **self._facts, **values}
            with Path(self._path).open("ab") as file:
                file.write(msgspec.json.encode(record) + b"\n")


def line(cells: Sequence[str]) -> str:
    """A row in Markdown."""
    return "| " + " | ".join(cells) + " |"
