"""What the engine core lends to plugins' commands. Core process, main thread, between two steps."""

from __future__ import annotations

import threading
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
    """Implements `EngineView`. Who reads it outside of a call, as inside of a step, or in another
    thread gets ContractViolation: nothing there would be consistent. What it gives are the live
    objects, which nothing guards once they were got."""

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
        self._thread: int | None = None
        """That of the call, while there is one."""
        self._raised: BaseException | None = None

    @contextmanager
    def lent(self) -> Iterator[None]:
        """For the time of a call, in its thread."""
        self._thread, self._raised = threading.get_ident(), None
        try:
            yield
        finally:
            self._thread = self._raised = None

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
        try:
            return self._call_workers(command, args, timeout=timeout)
        except BaseException as error:
            self._raised = error
            raise

    def came_from_workers(self, error: BaseException) -> bool:
        """Whether `call_workers` raised it in this call."""
        return error is self._raised

    def _check(self) -> None:
        if self._thread is None:
            raise ContractViolation(
                "an engine command used context.engine outside of `run`; it is lent for the time "
                "of a call, so read it there"
            )
        if self._thread != threading.get_ident():
            raise ContractViolation(
                "an engine command used context.engine in another thread than that of `run`; read "
                "it there, and give the thread what was read"
            )
