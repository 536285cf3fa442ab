"""The narrow view that scheduling policies get, and the service counters behind it."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from framework.core.request_table import RequestTable
from hookspecs.contracts.kv_cache import KVCacheManager
from hookspecs.contracts.request_view import RequestView
from hookspecs.types.columns import Int32Column, Int64Column

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
        self._served: Int64Column = np.zeros(8, np.int64)
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
        index = self._table.tenant_index(tenant)
        return int(self._served[index]) if index < len(self._served) else 0

    def begin_step(self) -> None:
        """One time for all decisions of a step."""
        self.now = self._clock()

    def count_served(self, tenants: Int32Column, tokens: Int32Column) -> None:
        """Add a step's tokens to the counters of their tenants."""
        needed = int(tenants.max(initial=0)) + 1
        if needed > len(self._served):
            self._served = np.concatenate([self._served, np.zeros(needed, np.int64)])
        np.add.at(self._served, tenants, tokens)

    def count_step(self, seconds: float) -> None:
        """Move the average step time towards a step's own."""
        if self.recent_step_s == 0.0:
            self.recent_step_s = seconds
        else:
            self.recent_step_s += _SMOOTHING * (seconds - self.recent_step_s)
