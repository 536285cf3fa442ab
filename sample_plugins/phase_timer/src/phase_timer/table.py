"""The table in the log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from phase_timer.durations import BOUNDS_S, Durations

__all__ = ["table"]

_NAMES: Final = tuple(f"<={bound * 1e3:g}" for bound in BOUNDS_S)
_HEAD: Final = ("calls", "failed", "total", "mean", "max", *_NAMES, f">{BOUNDS_S[-1] * 1e3:g}")


def table(phases: Mapping[str, Durations]) -> str:
    """A row for each phase that was called; times in milliseconds."""
    lines = [f"{'':18}" + "".join(f"{word:>10}" for word in _HEAD)]
    lines += [_row(phase, found) for phase, found in phases.items() if found.count]
    return "\n".join(lines)


def _row(phase: str, found: Durations) -> str:
    times = (found.total_s, found.total_s / found.count, found.max_s)
    cells = [f"{found.count:10}", f"{found.failed:10}"]
    cells += [f"{seconds * 1e3:10.3f}" for seconds in times]
    cells += [f"{number:10}" for number in found.histogram]
    return f"{phase:18}" + "".join(cells)
