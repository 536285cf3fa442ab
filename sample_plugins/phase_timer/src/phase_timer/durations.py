"""Durations of one phase, counted in ranges."""

from __future__ import annotations

import threading
from bisect import bisect_left
from typing import Final

__all__ = ["BOUNDS_S", "Durations"]

BOUNDS_S: Final = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
"""Upper bounds of the ranges, inclusive, in seconds; one more range has what is longer."""


class Durations:
    """Any thread: a future is completed in whichever thread its executor likes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.count = 0
        self.failed = 0
        """How many of them ended with an exception."""
        self.total_s = 0.0
        self.max_s = 0.0
        self.histogram = [0] * (len(BOUNDS_S) + 1)
        """How many were in each range."""

    def add(self, seconds: float, *, failed: bool = False) -> None:
        """One call of the phase has ended."""
        with self._lock:
            self.count += 1
            self.failed += failed
            self.total_s += seconds
            self.max_s = max(self.max_s, seconds)
            self.histogram[bisect_left(BOUNDS_S, seconds)] += 1
