"""The narrow view that scheduling policies get."""

from __future__ import annotations

import time
from collections.abc import Callable

from framework.core.request_table import RequestTable
from hookspecs.contracts.kv_cache import KVCacheManager
from hookspecs.contracts.request_view import RequestView

__all__ = ["SchedulerView"]

_SMOOTHING = 0.1


class SchedulerView:
    """Implements the `SchedulerView` protocol. Core process, main thread."""

    def __init__(
        self,
        table: RequestTable,
        kv_cache: KVCacheManager,
        num_waiting: Callable[[], int],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._table = table
        self._kv_cache = kv_cache
        self._num_waiting = num_waiting
        self._clock = clock
        self.now = clock()
        self.recent_step_s = 0.0

    @property
    def num_running(self) -> int:
        return self._table.num_running

    @property
    def num_waiting(self) -> int:
        return self._num_waiting()

    @property
    def free_blocks(self) -> int:
        return self._kv_cache.num_free_blocks

    @property
    def total_blocks(self) -> int:
        return self._kv_cache.num_total_blocks

    def blocks_needed(self, request: RequestView) -> int:
        return self._kv_cache.blocks_for(request.num_tokens)

    def served_tokens(self, tenant: str) -> int:
        return self._table.tenant_ledger.served(tenant)

    def refresh(self) -> None:
        """One time for all decisions of a step, or of requests that arrive between steps."""
        self.now = self._clock()

    def count_step(self, seconds: float) -> None:
        """Move the average step time towards a step's own."""
        if self.recent_step_s == 0.0:
            self.recent_step_s = seconds
        else:
            self.recent_step_s += _SMOOTHING * (seconds - self.recent_step_s)
