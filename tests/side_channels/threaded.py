"""A plugin whose executor runs its worker in a second thread, and observers that note theirs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from builtin_plugins.executor_uniproc.executor import UniprocExecutor
from hookspecs import EngineHooks, PluginInfo, Provider, hookimpl
from hookspecs.contracts.executor import ExecutorContext
from hookspecs.events import PluginFailed
from hookspecs.types.kv import KVCacheConfig, KVLayerSpec
from hookspecs.types.step import GrammarOutput, ModelRunnerOutput, SchedulerOutput

__all__ = ["Threaded"]

T = TypeVar("T")


class ThreadedExecutor(UniprocExecutor):
    """Every call of the worker, its constructor included, in one thread of its own."""

    def __init__(self, context: ExecutorContext) -> None:
        super().__init__(context)
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="tested-worker")

    def _wait(self, call: Callable[[], T]) -> T:
        return self._pool.submit(call).result()

    def start(self) -> None:
        self._wait(super().start)

    def kv_layer_specs(self) -> list[KVLayerSpec]:
        return self._wait(super().kv_layer_specs)

    def available_kv_bytes(self) -> int:
        return self._wait(super().available_kv_bytes)

    def initialize_kv_cache(self, kv_config: KVCacheConfig) -> None:
        self._wait(lambda: self.worker.initialize_kv_cache(kv_config))

    def execute_model(self, scheduled: SchedulerOutput) -> Future[None]:
        return self._pool.submit(lambda: self.worker.execute_model(scheduled))

    def sample_tokens(self, grammar: GrammarOutput | None) -> Future[ModelRunnerOutput]:
        return self._pool.submit(lambda: self.worker.sample_tokens(grammar))

    def collective_rpc(
        self, command: str, args: Sequence[Any] = (), *, timeout: float | None = None
    ) -> list[Any]:
        inherited = super().collective_rpc
        return self._wait(lambda: inherited(command, args, timeout=timeout))

    def shutdown(self) -> None:
        inherited = super().shutdown
        try:
            self._pool.submit(inherited).result()
        except RuntimeError:  # shut down already
            return
        self._pool.shutdown()


class Threaded(EngineHooks):
    """Offers the executor `threaded`."""

    PLUGIN = PluginInfo(name="threaded", api=">=1.0,<2")

    def __init__(self) -> None:
        self.told: list[tuple[PluginFailed, threading.Thread]] = []

    @hookimpl
    def register_executors(self) -> Iterable[Provider[Any]]:
        yield Provider("threaded", f"{__name__}:ThreadedExecutor")

    @hookimpl
    def on_plugin_failed(self, event: PluginFailed) -> None:
        self.told.append((event, threading.current_thread()))
