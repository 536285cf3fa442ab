"""The programs of this folder as processes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tests.processes.launches import PATIENCE_S, Place

__all__ = ["Program", "parent", "running_code", "server"]

_ROOT: Final = Path(__file__).parents[2]


class Program:
    """A process, its output readable line by line."""

    def __init__(self, place: Place, *arguments: str) -> None:
        """`arguments`: of Python."""
        self.place = place
        self.errors = place.path / "program.log"
        with self.errors.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, *arguments],
                cwd=_ROOT,
                env=place.environment,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    def line(self) -> str:
        """The next line of output, after which the directories of the launch are known."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline().strip()
        assert line, f"it ended early: {self.log()}"
        self.place.look()
        return line

    def send(self, number: signal.Signals) -> None:
        """A signal to the process itself."""
        self.process.send_signal(number)

    def exit_code(self, limit_s: float = PATIENCE_S) -> int:
        """Waits for it; negative: the signal that ended it."""
        return self.process.wait(limit_s)

    def log(self) -> str:
        """What it wrote to standard error."""
        return self.errors.read_text()

    def children(self, title: str) -> list[int]:
        """Process ids of the children whose title begins so, sorted by title."""
        found = []
        for pid in self.place.processes():
            shown = Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0 ").decode()
            if shown.startswith(f"framework: {title}"):
                found.append((shown, pid))
        return [pid for _, pid in sorted(found)]


@contextmanager
def _running(program: Program) -> Iterator[Program]:
    with program.process:
        try:
            yield program
        finally:
            program.place.look()
            program.process.kill()


def parent(place: Place, settings: Mapping[str, Any], *, streams: int = 0) -> Any:
    """A context with `parent_program`; killed at its end."""
    return _module(place, "parent_program", json.dumps(settings), str(streams))


def server(place: Place, settings: Mapping[str, Any]) -> Any:
    """A context with `serving_program`; killed at its end."""
    return _module(place, "serving_program", json.dumps(settings))


def running_code(place: Place, code: str) -> Any:
    """A context with a program; killed at its end."""
    return _running(Program(place, "-c", code))


def _module(place: Place, module: str, *arguments: str) -> Any:
    return _running(Program(place, "-m", f"tests.processes.{module}", *arguments))
