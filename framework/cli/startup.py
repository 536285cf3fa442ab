"""What a command shows while its engine starts: lines of the start-up log, long work."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Any, Self

__all__ = ["Startup"]


class Startup:
    """Start-up lines on standard error, and a bar there for downloads and conversions.

    Without a terminal a line says that such work begins.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        """The start-up log."""
        self._bar: Any = None
        self._tasks: dict[str, Any] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.finish()

    def finish(self) -> None:
        """The start is over: bars are left as they are. Safe to call twice."""
        bar, self._bar = self._bar, None
        self._tasks.clear()
        if bar is not None:
            bar.stop()

    def report(self, line: str) -> None:
        """One line of the start-up log."""
        self.lines.append(line)
        print(f"framework: {line}", file=sys.stderr)

    def progress(self, what: str, fraction: float) -> None:
        """`what` is done to `fraction` (0 to 1)."""
        if what not in self._tasks:
            self._tasks[what] = self._begin(what)
        if self._bar is not None:
            self._bar.update(self._tasks[what], completed=fraction)

    def _begin(self, what: str) -> Any:
        if not sys.stderr.isatty():
            print(f"framework: {what}", file=sys.stderr)
            return None
        if self._bar is None:
            from rich.console import Console
            from rich.progress import Progress

            self._bar = Progress(console=Console(stderr=True, markup=False))
            self._bar.start()
        return self._bar.add_task(what, total=1.0)
