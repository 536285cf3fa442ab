"""How often each plugin's hooks were called, how often they raised, and how long they took."""

from __future__ import annotations

__all__ = ["Counter", "Counters"]


class Counter:
    """Of one plugin and hook. Written by the thread that calls the hook."""

    __slots__ = ("calls", "errors", "errors_in_row", "seconds", "slow_warned", "window_seconds")

    def __init__(self) -> None:
        self.calls = 0
        self.errors = 0
        self.errors_in_row = 0
        self.seconds = 0.0
        self.window_seconds = 0.0
        """Value of `seconds` at the start of the window that is averaged."""
        self.slow_warned = False


class Counters:
    """All counters of one process."""

    def __init__(self) -> None:
        self._counters: dict[tuple[str, str], Counter] = {}

    def of(self, plugin: str, hook: str) -> Counter:
        """The counter of a plugin's hook; made on first use."""
        return self._counters.setdefault((plugin, hook), Counter())
