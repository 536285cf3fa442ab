"""The executor: one worker, all of whose calls run in one thread of its own."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from hookspecs.contracts.executor import Executor, ExecutorContext
from hookspecs.contracts.worker import Worker
from hookspecs.errors import EngineDeadError
from hookspecs.types.kv import KVCacheConfig, KVLayerSpec
from hookspecs.types.step import GrammarOutput, ModelRunnerOutput, SchedulerOutput

T = TypeVar("T")


class ThreadExecutor(Executor):
    """A pool of one thread runs calls in the order in which they were made."""

    def __init__(self, context: ExecutorContext) -> None:
        super().__init__(context)
        self._thread = ThreadPoolExecutor(1, "acme-worker")
        self._worker: Worker | None = None
        self._closed = False

    def _submit(self, method: Callable[..., T], *args: Any) -> Future[T]:
        if self._closed:
            raise EngineDeadError("the executor was shut down: start the engine again")
        return self._thread.submit(method, *args)

    @property
    def _live(self) -> Worker:
        assert self._worker is not None, "start comes first"
        return self._worker

    def start(self) -> None:
        """Construct the worker in its thread and load the model."""

        def load() -> Worker:
            worker = self.context.create_worker(0, 0, 1)
            worker.init_device()
            worker.load_model()
            return worker

        self._worker = self._submit(load).result()

    def kv_layer_specs(self) -> list[KVLayerSpec]:
        """Of the one worker."""
        return self._submit(self._live.kv_layer_specs).result()

    def available_kv_bytes(self) -> int:
        """Of the one worker."""
        return self._submit(self._live.available_kv_bytes).result()

    def initialize_kv_cache(self, kv_config: KVCacheConfig) -> None:
        """Allocate and warm up."""
        self._submit(self._live.initialize_kv_cache, kv_config).result()

    def execute_model(self, scheduled: SchedulerOutput) -> Future[None]:
        """Queue the forward."""
        return self._submit(self._live.execute_model, scheduled)

    def sample_tokens(self, grammar: GrammarOutput | None) -> Future[ModelRunnerOutput]:
        """Queue the sampling, behind its forward."""
        return self._submit(self._live.sample_tokens, grammar)

    def collective_rpc(
        self, command: str, args: Sequence[Any] = (), *, timeout: float | None = None
    ) -> list[Any]:
        """One result."""
        method = self._live.commands()[command]
        try:
            return [self._submit(method, *args).result(timeout)]
        except TimeoutError:
            raise
        except Exception as error:
            error.add_note("raised by the worker of rank 0")
            raise

    def check_health(self) -> None:
        """The thread lives until shutdown."""
        if self._closed:
            raise EngineDeadError("the executor was shut down: start the engine again")

    def shutdown(self) -> None:
        """Let the worker give everything back, and end the thread."""
        if self._closed:
            return
        if self._worker is not None:
            self._submit(self._worker.shutdown).result()
        self._closed = True
        self._thread.shutdown()
