"""The executor. Core process: called by the main thread; the worker lives in another one."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from typing import Any, TypeVar

from hookspecs.contracts.executor import Executor, ExecutorContext
from hookspecs.contracts.worker import Worker
from hookspecs.errors import EngineDeadError, InternalError
from hookspecs.types.kv import KVCacheConfig, KVLayerSpec
from hookspecs.types.step import GrammarOutput, ModelRunnerOutput, SchedulerOutput

from thread_executor.call_thread import CallThread

__all__ = ["ThreadExecutor"]

T = TypeVar("T")

_RANK = 0


class ThreadExecutor(Executor):
    """One worker. All its methods, the constructor included, are called in one thread of its own,
    in the order of the calls here; so futures complete in that order.

    An exception of the worker is its caller's. What is no `Exception`, such as SystemExit, ends
    the thread: the worker is lost then, and `on_failure` is told.
    """

    def __init__(self, context: ExecutorContext) -> None:
        super().__init__(context)
        self._thread: CallThread | None = None
        self._worker: Worker | None = None
        """Set and read in its thread only."""
        self._commands: Mapping[str, Callable[..., Any]] = {}
        self._forwards: deque[Future[None]] = deque()
        """Forwards that have not been sampled, oldest first."""
        self._lock = threading.Lock()
        self._lost: str | None = None
        self._callbacks: list[Callable[[str], None]] = []

    def start(self) -> None:
        self._thread = thread = CallThread(
            f"worker-{_RANK}", at_end=self._end_worker, on_lost=self._tell_lost
        )
        self._commands = thread.submit(self._start_worker).result()

    def kv_layer_specs(self) -> list[KVLayerSpec]:
        return self._submit(lambda worker: worker.kv_layer_specs()).result()

    def available_kv_bytes(self) -> int:
        return self._submit(lambda worker: worker.available_kv_bytes()).result()

    def initialize_kv_cache(self, kv_config: KVCacheConfig) -> None:
        self._submit(lambda worker: worker.initialize_kv_cache(kv_config)).result()

    def execute_model(self, scheduled: SchedulerOutput) -> Future[None]:
        forward = self._submit(lambda worker: worker.execute_model(scheduled))
        self._forwards.append(forward)
        return forward

    def sample_tokens(self, grammar: GrammarOutput | None) -> Future[ModelRunnerOutput]:
        if not self._forwards:
            raise InternalError("sample_tokens was called without a forward to sample from")
        forward = self._forwards.popleft()

        def sample(worker: Worker) -> ModelRunnerOutput:
            # It has ended, one way or the other, since its turn was before this one's.
            error = forward.exception()
            if error is not None:
                raise EngineDeadError("nothing to sample: the forward failed") from error
            return worker.sample_tokens(grammar)

        return self._submit(sample)

    def collective_rpc(
        self, command: str, args: Sequence[Any] = (), *, timeout: float | None = None
    ) -> list[Any]:
        """After `timeout` seconds the caller stops waiting. A command that the worker has not
        begun by then is never run; one that runs goes on to its end, its result is dropped, and
        the next step waits for it."""
        thread = self._running()
        thread.check()
        if command not in self._commands:
            known = sorted(self._commands)
            raise KeyError(f"unknown worker command {command!r}; known are {known}")
        answer = thread.submit(lambda: self._run_command(command, args))
        # Not `answer.result(timeout)`: the worker itself may raise TimeoutError.
        wait([answer], timeout)
        late = f"the worker did not answer {command!r} within {timeout} s; "
        if answer.cancel():
            raise TimeoutError(f"{late}it had not begun, and will not run it")
        if answer.running():
            raise TimeoutError(f"{late}it goes on with it, and the next step waits for it")
        return [answer.result()]

    def check_health(self) -> None:
        self._running().check()

    def shutdown(self) -> None:
        """Waits for the call that runs, since a thread can not be ended from outside; calls that
        have not begun fail with EngineDeadError."""
        if self._thread is not None:
            self._thread.close()

    def on_failure(self, callback: Callable[[str], None]) -> None:
        """Called in the worker's thread; at once, in the caller's, if it is lost already."""
        with self._lock:
            if self._lost is None:
                self._callbacks.append(callback)
                return
            reason = self._lost
        callback(reason)

    def _running(self) -> CallThread:
        if self._thread is None:
            raise EngineDeadError("the executor has no worker: it is not started")
        return self._thread

    def _submit(self, function: Callable[[Worker], T]) -> Future[T]:
        return self._running().submit(lambda: function(self._started()))

    # In the worker's thread

    def _start_worker(self) -> dict[str, Callable[..., Any]]:
        # Kept before it starts, so that a start that fails half-way is shut down too.
        self._worker = worker = self.context.create_worker(_RANK, 0, 1)
        worker.init_device()
        worker.load_model()
        return worker.commands()

    def _started(self) -> Worker:
        if self._worker is None:
            raise EngineDeadError("the executor has no worker: its start failed")
        return self._worker

    def _run_command(self, command: str, args: Sequence[Any]) -> Any:
        try:
            return self._commands[command](*args)
        except Exception as error:
            error.add_note(f"raised by the worker of rank {_RANK}")
            raise

    def _end_worker(self) -> None:
        worker, self._worker = self._worker, None
        self._commands = {}
        if worker is not None:
            worker.shutdown()

    def _tell_lost(self, error: BaseException) -> None:
        reason = f"the worker's thread ended: {type(error).__name__}: {error}"
        with self._lock:
            self._lost = reason
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback(reason)
