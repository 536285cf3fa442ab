"""Median and spread of repeats, ratios of pairs, and the load that others put on the machine."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self

import msgspec
import psutil

__all__ = ["FOREIGN_LIMIT", "LoadWatch", "Spread", "ratios", "show", "spread"]

FOREIGN_LIMIT = 0.15
"""Cores. Above it a measurement is marked: one busy foreign core makes code of two threads many
times slower, so that a figure taken beside it says nothing."""


class Spread(msgspec.Struct, frozen=True):
    """Of repeats."""

    median: float
    min: float
    max: float
    count: int


def spread(values: Sequence[float]) -> Spread:
    """At least one value."""
    return Spread(statistics.median(values), min(values), max(values), len(values))


def ratios(ours: Sequence[float], peer: Sequence[float]) -> Spread:
    """Of repeats that ran in turn: each of ours by the peer's beside it."""
    return spread([own / other for own, other in zip(ours, peer, strict=True)])


def show(values: Spread, digits: int = 1) -> str:
    """`median [min..max]`."""
    return f"{values.median:.{digits}f} [{values.min:.{digits}f}..{values.max:.{digits}f}]"


class LoadWatch:
    """`with` it around a measurement: `foreign` is then the number of cores that processes other
    than this one and its descendants used. Resolution is a tick of the kernel (10 ms), so it says
    little about less than half a second."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.foreign = 0.0

    def __enter__(self) -> Self:
        self._all, self._own, self._start = _busy_s(), _tree_s(), time.perf_counter()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        wall = time.perf_counter() - self._start
        used = (_busy_s() - self._all) - (_tree_s() - self._own)
        self.foreign = max(0.0, used / wall)
        if self.foreign > FOREIGN_LIMIT and kind is None:
            print(
                f"warning: other processes used {self.foreign:.2f} cores during {self.what}; "
                "its figures are not to be trusted",
                file=sys.stderr,
            )


def _busy_s() -> float:
    """Seconds that all cores together were not idle."""
    times = psutil.cpu_times()
    return float(times.user + times.system + times.nice + times.irq + times.softirq)


def _tree_s() -> float:
    """CPU seconds of this process and all below it, with those that have ended."""
    own = psutil.Process()
    total = 0.0
    for process in [own, *own.children(recursive=True)]:
        try:
            total += sum(process.cpu_times()[:4])
        except psutil.NoSuchProcess:
            continue
    return total
