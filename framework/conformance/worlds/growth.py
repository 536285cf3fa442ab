"""How much memory a workload leaves behind."""

from __future__ import annotations

import gc
import logging
import time
import tracemalloc
from collections.abc import Callable, Sequence
from typing import Final

__all__ = ["bytes_kept"]

ROUNDS: Final = ((1000, 0.5), (1000, 0.5), (2000, 0.5), (4000, 5.0))
"""Events of each round, of which the first only fills what has a bound; seconds in which threads
may work off what they were given in it. They begin anew as long as it becomes less."""
PROGRESS_BYTES: Final = 1024
LONGEST_S: Final = 40.0
"""For a thread that writes to a slow disk, in all rounds."""


def bytes_kept(
    tell: Callable[[int, int], None],
    enough: float,
    rounds: Sequence[tuple[int, float]] = ROUNDS,
) -> float:
    """Bytes that are kept of each event, after thousands. `tell` is given the number of the first
    event and how many.

    Once they are fewer than `enough` no more are told, so what keeps the last few thousand is
    told more than what keeps none. Nothing is logged meanwhile: who tests may keep the records.
    """
    tracing, disabled = tracemalloc.is_tracing(), logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    if not tracing:
        tracemalloc.start()
    try:
        first, kept = 0, 0.0
        end = time.monotonic() + LONGEST_S
        for number, (count, settle_s) in enumerate(rounds):
            before = _traced()
            tell(first, count)
            first += count
            deadline, low = time.monotonic() + settle_s, float("inf")
            while (more := _traced() - before) >= count * enough and time.monotonic() < deadline:
                if more <= low - PROGRESS_BYTES:
                    low, deadline = more, min(end, time.monotonic() + settle_s)
                # A thread may hold what it wrote last until it has something new to write.
                tell(first, 1)
                first += 1
                time.sleep(0.02)
            kept = more / count
            if number and kept < enough:
                break
        return kept
    finally:
        if not tracing:
            tracemalloc.stop()
        logging.disable(disabled)


def _traced() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]
