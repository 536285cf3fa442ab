"""What the engine core lends to plugins' commands. Core process, main thread, between two steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from hookspecs.contracts.kv_cache import CacheView, KVCacheManager
from hookspecs.contracts.policy import SchedulerView
from hookspecs.contracts.request_view import RequestView
from hookspecs.errors import ContractViolation

__all__ = ["LentEngine"]


class _CallWorkers(Protocol):
    def __call__(
        self, name: str, args: Sequence[Any] = (), *, timeout: float | None = None
    ) -> list[Any]: ...


class _Blocks:
    """Implements `CacheView`: the numbers, without what changes them."""

    def __init__(self, kv_cache: KVCacheManager) -> None:
        self._kv_cache = kv_cache

    @property
    def num_free_blocks(self) -> int:
        return self._kv_cache.num_free_blocks

    @property
    def num_total_blocks(self) -> int:
        return self._kv_cache.num_total_blocks


class LentEngine:
    """Implements `EngineView`. Who reads it outside of a call, as in another thread or inside of a
    step, gets ContractViolation: nothing there would be consistent."""

    def __init__(
        self,
        scheduler: SchedulerView,
        kv_cache: KVCacheManager,
        requests: Callable[[], Sequence[RequestView]],
        call_workers: _CallWorkers,
    ) -> None:
        """`requests`: those that have not ended, in the order of arrival."""
        self._scheduler = scheduler
        self._cache = _Blocks(kv_cache)
        self._requests = requests
        self._call_workers = call_workers
        self._is_lent = False

    @contextmanager
    def lent(self) -> Iterator[None]:
        """For the time of a call."""
        self._is_lent = True
        try:
            yield
        finally:
            self._is_lent = False

    @property
    def scheduler(self) -> SchedulerView:
        self._check()
        return self._scheduler

    @property
    def cache(self) -> CacheView:
        self._check()
        return self._cache

    def requests(self) -> Sequence[RequestView]:
        self._check()
        return self._requests()

    def call_workers(
        self, command: str, args: Sequence[Any] = (), *, timeout: float | None = None
    ) -> list[Any]:
        self._check()
        return self._call_workers(command, args, timeout=timeout)

    def _check(self) -> None:
        if not self._is_lent:
            raise ContractViolation(
                "an engine command used context.engine outside of `run`; it is lent for the time "
                "of a call, so read it there"
            )
