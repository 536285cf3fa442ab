"""Prefix cache hit rate over recent requests."""

from __future__ import annotations

from collections import deque

from hookspecs.types.stats import PrefixCacheStats

__all__ = ["RecentHitRate"]


class RecentHitRate:
    """Share of prompt tokens that the prefix cache had, over about the last `window` requests.

    Lookups of requests that resume after a preemption are left out: they mostly find what the
    same request left behind. A reset of the cache starts anew.
    """

    def __init__(self, window: int = 1000) -> None:
        self._window = window
        self._lookups: deque[PrefixCacheStats] = deque()
        self._requests = 0
        self._queries = 0
        self._hits = 0

    @property
    def value(self) -> float | None:
        """0 to 1; None before the first lookup."""
        return self._hits / self._queries if self._queries else None

    def add(self, stats: PrefixCacheStats) -> None:
        """Lookups since the last call; the oldest leave when newer ones fill the window."""
        if stats.resets:
            self._lookups.clear()
            self._requests = self._queries = self._hits = 0
        if not stats.requests:
            return
        self._lookups.append(stats)
        self._count(stats, 1)
        while self._requests - self._lookups[0].requests >= self._window:
            self._count(self._lookups.popleft(), -1)

    def _count(self, stats: PrefixCacheStats, sign: int) -> None:
        self._requests += sign * stats.requests
        self._queries += sign * stats.queries
        self._hits += sign * stats.hits
