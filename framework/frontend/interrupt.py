"""Ctrl-C between the steps of an engine that runs in this process, never inside of one."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["Interrupt", "deferred_interrupt", "interrupts_deferred"]


class Interrupt:
    """Whether Ctrl-C was pressed."""

    def __init__(self) -> None:
        self.requested = False

    def note(self, number: int, frame: FrameType | None) -> None:
        """The signal handler. KeyboardInterrupt the second time: then it is meant."""
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True


@contextmanager
def deferred_interrupt() -> Iterator[Interrupt]:
    """Within, the first Ctrl-C only sets a flag, which the caller looks at. Main thread."""
    interrupt = Interrupt()
    before = signal.signal(signal.SIGINT, interrupt.note)
    try:
        yield interrupt
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def interrupts_deferred() -> Iterator[None]:
    """Within, Ctrl-C waits: its handler is called at the end. The second raises at once.

    Changes nothing where no step can be interrupted: in other threads, where Ctrl-C is ignored
    or kills the process, and inside of `deferred_interrupt`.
    """
    main = threading.current_thread() is threading.main_thread()
    handler = signal.getsignal(signal.SIGINT) if main else None
    if not callable(handler) or isinstance(getattr(handler, "__self__", None), Interrupt):
        yield
        return
    interrupt = Interrupt()
    signal.signal(signal.SIGINT, interrupt.note)
    try:
        yield
    except KeyboardInterrupt:
        interrupt.requested = False  # told by this exception
        raise
    finally:
        signal.signal(signal.SIGINT, handler)
        if interrupt.requested:
            handler(signal.SIGINT, None)
