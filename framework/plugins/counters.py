"""How often each plugin's hooks were called, how often they raised, and how long they took."""

from __future__ import annotations

__all__ = ["Counter", "Counters"]


class Counter:
    """Of one plugin and hook. Written by the thread that calls the hook; of a provider hook the
    counts are of what the kernel does with its providers."""

    __slots__ = (
        "calls",
        "errors",
        "errors_in_row",
        "registered",
        "seconds",
        "slow_warned",
        "window_seconds",
    )

    def __init__(self) -> None:
        self.calls = 0
        self.errors = 0
        self.errors_in_row = 0
        self.seconds = 0.0
        self.window_seconds = 0.0
        """Value of `seconds` at the start of the window that is averaged."""
        self.slow_warned = False
        self.registered = False
        """Whether a provider hook was asked for its providers. That is no call that counts: it
        happens once in each process, whatever the engine does."""


class Counters:
    """All counters of one process."""

    def __init__(self) -> None:
        self._counters: dict[tuple[str, str], Counter] = {}
        self._of_threads: dict[tuple[str, str], list[Counter]] = {}

    def of(self, plugin: str, hook: str) -> Counter:
        """The counter of a plugin's hook; made on first use."""
        return self._counters.setdefault((plugin, hook), Counter())

    def of_thread(self, plugin: str, hook: str) -> Counter:
        """A new one, for calls in another thread than the others': a counter has one writer."""
        counter = Counter()
        self._of_threads.setdefault((plugin, hook), []).append(counter)
        return counter

    def total(self, plugin: str, hook: str) -> Counter:
        """The counts of all threads, as a copy."""
        first, total = self.of(plugin, hook), Counter()
        total.registered = first.registered
        for counter in (first, *self._of_threads.get((plugin, hook), ())):
            total.calls += counter.calls
            total.errors += counter.errors
            total.seconds += counter.seconds
        return total
