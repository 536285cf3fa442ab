"""Ctrl-C that waits for the end of a step."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["Interrupt", "deferred_interrupt"]


class Interrupt:
    """Whether Ctrl-C was pressed."""

    def __init__(self) -> None:
        self.requested = False

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt  # the second time it is meant
        self.requested = True


@contextmanager
def deferred_interrupt() -> Iterator[Interrupt]:
    """Within, the first Ctrl-C only sets a flag: an engine that runs in this process must not
    be interrupted in the middle of a step. Main thread."""
    interrupt = Interrupt()
    before = signal.signal(signal.SIGINT, interrupt._note)
    try:
        yield interrupt
    finally:
        signal.signal(signal.SIGINT, before)
