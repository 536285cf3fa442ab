"""How much memory a workload leaves behind."""

from __future__ import annotations

import gc
import logging
import time
import tracemalloc
from collections.abc import Callable
from typing import Final

__all__ = ["bytes_kept"]

ROUNDS: Final = (1000, 1000, 2000, 4000)
"""Events of each round; the first only fills what has a bound."""
_SETTLE_S: Final = (0.5, 0.5, 0.5, 5.0)
"""Seconds in which threads may work off what they were given in a round."""


def bytes_kept(tell: Callable[[int, int], None], enough: float) -> float:
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
        for number, count in enumerate(ROUNDS):
            before = _traced()
            tell(first, count)
            first += count
            deadline = time.monotonic() + _SETTLE_S[number]
            while (more := _traced() - before) >= count * enough and time.monotonic() < deadline:
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
