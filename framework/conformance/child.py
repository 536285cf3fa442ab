"""The process in which a plugin is tested: `python -m framework.conformance.child ORDER JOURNAL`.

A plugin may end it, hang, or fork; `framework.conformance.apart` reads the journal and judges.
"""

from __future__ import annotations

import faulthandler
import os
import sys
from pathlib import Path
from typing import Any, Final

import msgspec

from framework.conformance.journal import Journal, Line
from framework.conformance.run import conform
from framework.process.remote_error import error_to_send
from hookspecs.errors import FrameworkError

__all__ = ["LIMIT_S", "Order", "main"]

LIMIT_S: Final = 300.0
"""Seconds that loading a plugin, or one test, may take. Then the process writes where each thread
is, and ends."""


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What to do; the arguments of `conform`."""

    plugin: str
    settings: dict[str, Any]
    examples: dict[str, Any]
    seed: int
    device: str
    only: tuple[str, ...]
    expected_failures: dict[str, str]


class _Watched(Journal):
    """Each line gives the next test its time."""

    def write(self, line: Line) -> None:
        faulthandler.dump_traceback_later(LIMIT_S, exit=True)
        super().write(line)


def main(order: Path, path: Path) -> int:
    """Returns 0 when all is in the journal."""
    wanted = msgspec.json.decode(order.read_bytes(), type=Order)
    faulthandler.dump_traceback_later(LIMIT_S, exit=True)
    journal = _Watched(path)
    try:
        conform(**msgspec.structs.asdict(wanted), journal=journal)
    except FrameworkError as error:
        journal.write(Line(refused=error_to_send(error)))
    return 0


if __name__ == "__main__":
    try:
        code = main(Path(sys.argv[1]), Path(sys.argv[2]))
    except BaseException:
        import traceback

        traceback.print_exc()
        code = 1
    for stream in (sys.stdout, sys.stderr):
        if not stream.closed:
            stream.flush()
    # What the plugin left behind, threads or functions for the end, has no say any more.
    os._exit(code)
