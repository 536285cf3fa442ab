"""What is left of a thing that was shut down: threads and child processes."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

from framework.conformance.worlds.patience import KitThread

__all__ = ["Leftovers"]

_PATIENCE_S = 2.0
"""Seconds that what ends by itself is given."""
_HELPERS = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")


class Leftovers:
    """Made before; `names` says what there is more afterwards."""

    def __init__(self) -> None:
        self._threads = set(threading.enumerate())
        self._children = _children()

    def names(self) -> list[str]:
        """Threads and child processes that came since and live on."""
        deadline = time.monotonic() + _PATIENCE_S
        while (left := self._left()) and time.monotonic() < deadline:
            time.sleep(0.01)
        return left

    def _left(self) -> list[str]:
        threads = [
            f"thread {thread.name!r}"
            for thread in set(threading.enumerate()) - self._threads
            if not isinstance(thread, KitThread)
        ]
        children = _children() - self._children
        return sorted([*threads, *(f"process {pid} ({_command(pid)})" for pid in children)])


def _children() -> set[int]:
    """Child processes of this one; none where the system does not tell. Helpers that
    `multiprocessing` keeps for the life of a program do not count."""
    found: set[int] = set()
    for file in Path(f"/proc/{os.getpid()}/task").glob("*/children"):
        try:
            found.update(map(int, file.read_text().split()))
        except OSError:
            continue  # a thread that has just ended
    return {pid for pid in found if not any(name in _command(pid) for name in _HELPERS)}


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ").strip() or "ended"
    except OSError:
        return "ended"
