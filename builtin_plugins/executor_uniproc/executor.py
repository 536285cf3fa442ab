"""One worker in the engine core's process, called directly."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, ClassVar

from builtin_plugins.executor_uniproc.completed import CompletedFuture
from hookspecs.contracts.executor import Executor, ExecutorCapability, ExecutorContext
from hookspecs.contracts.worker import Worker
from hookspecs.errors import EngineDeadError
from hookspecs.types.kv import KVCacheConfig, KVLayerSpec
from hookspecs.types.step import GrammarOutput, ModelRunnerOutput, SchedulerOutput

__all__ = ["UniprocExecutor"]


class UniprocExecutor(Executor):
    """Every call runs to its end in the caller's thread; futures are complete on return."""

    capabilities: ClassVar[frozenset[ExecutorCapability]] = frozenset()

    def __init__(self, context: ExecutorContext) -> None:
        super().__init__(context)
        self._worker: Worker | None = None
        self._forward: Future[None] = CompletedFuture()
        """The last one."""

    @property
    def worker(self) -> Worker:
        """The worker. EngineDeadError before start and after shutdown."""
        if self._worker is None:
            raise EngineDeadError("the executor has no worker: it is not started, or shut down")
        return self._worker

    def start(self) -> None:
        # Kept before it starts, so that a start that fails half-way is shut down too.
        self._worker = worker = self.context.create_worker(0, 0, 1)
        worker.init_device()
        worker.load_model()

    def kv_layer_specs(self) -> list[KVLayerSpec]:
        return self.worker.kv_layer_specs()

    def available_kv_bytes(self) -> int:
        return self.worker.available_kv_bytes()

    def initialize_kv_cache(self, kv_config: KVCacheConfig) -> None:
        self.worker.initialize_kv_cache(kv_config)

    def execute_model(self, scheduled: SchedulerOutput) -> Future[None]:
        try:
            self.worker.execute_model(scheduled)
            self._forward = CompletedFuture()
        except Exception as error:
            self._forward = CompletedFuture(error=error)
        return self._forward

    def sample_tokens(self, grammar: GrammarOutput | None) -> Future[ModelRunnerOutput]:
        try:
            self._forward.result()  # A forward that failed left nothing to sample from.
            return CompletedFuture(self.worker.sample_tokens(grammar))
        except Exception as error:
            return CompletedFuture(error=error)

    def collective_rpc(
        self, command: str, args: Sequence[Any] = (), *, timeout: float | None = None
    ) -> list[Any]:
        commands = self.worker.commands()
        if command not in commands:
            raise KeyError(f"unknown worker command {command!r}; known are {sorted(commands)}")
        try:
            return [commands[command](*args)]
        except Exception as error:
            error.add_note("raised by the worker of rank 0")
            raise

    def check_health(self) -> None:
        _ = self.worker

    def shutdown(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.shutdown()
