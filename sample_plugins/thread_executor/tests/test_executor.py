"""The executor alone, over a worker whose calls wait for events."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from typing import Any, TypeVar

import numpy as np
import pytest
from hookspecs import EngineConfig
from hookspecs.contracts.executor import ExecutorContext
from hookspecs.contracts.model import ModelInfo, ResolvedModel
from hookspecs.contracts.worker import Worker, WorkerContext, command
from hookspecs.errors import EngineDeadError, InternalError
from hookspecs.types.kv import KVCacheConfig, KVLayerSpec
from hookspecs.types.step import GrammarOutput, ModelRunnerOutput, SchedulerOutput

from thread_executor.executor import ThreadExecutor

T = TypeVar("T")

_MODEL = ResolvedModel(
    name="none",
    path=None,
    tokenizer_path=None,
    info=ModelInfo(architecture="None", vocab_size=8, max_model_len=8),
)
_WAIT_S = 60.0
"""Longer than anything here takes: a test that waits so long has failed."""


class FakeWorker(Worker):
    """Notes what is called, and in which thread."""

    def __init__(self, context: WorkerContext, raises: Mapping[str, BaseException]) -> None:
        super().__init__(context)
        self._raises = raises
        self.calls: list[str] = []
        self.threads: set[int] = set()
        self.begun = threading.Event()
        """Set by `hold`, and by every forward."""
        self.gate = threading.Event()
        """Forwards and `hold` wait for it."""
        self.gate.set()
        self._note("__init__")

    def _note(self, name: str) -> None:
        self.calls.append(name)
        self.threads.add(threading.get_ident())
        if name in self._raises:
            raise self._raises[name]

    def _wait(self) -> None:
        self.begun.set()
        assert self.gate.wait(_WAIT_S)

    def init_device(self) -> None:
        self._note("init_device")

    def load_model(self) -> None:
        self._note("load_model")

    def kv_layer_specs(self) -> list[KVLayerSpec]:
        self._note("kv_layer_specs")
        return []

    def available_kv_bytes(self) -> int:
        self._note("available_kv_bytes")
        return 77

    def initialize_kv_cache(self, kv_config: KVCacheConfig) -> None:
        self._note("initialize_kv_cache")

    def execute_model(self, scheduled: SchedulerOutput) -> None:
        self._wait()
        self._note(f"execute_model {scheduled.step}")

    def sample_tokens(self, grammar: GrammarOutput | None) -> ModelRunnerOutput:
        self._note("sample_tokens")
        none = np.zeros(0, np.int32)
        return ModelRunnerOutput(num_sampled=none, token_ids=none)

    @property
    def device(self) -> str:
        return "cpu"

    def shutdown(self) -> None:
        self._note("shutdown")

    @command
    def add(self, a: int, b: int) -> int:
        self._note("add")
        return a + b

    @command
    def hold(self) -> str:
        self._wait()
        self._note("hold")
        return "held"


class Harness:
    """An executor, and the worker that it makes."""

    def __init__(self) -> None:
        self.workers: list[FakeWorker] = []
        self.raises: dict[str, BaseException] = {}
        """What the worker raises, by call."""
        self.executor = ThreadExecutor(
            ExecutorContext(
                config=EngineConfig(), model=_MODEL, max_model_len=8, create_worker=self._create
            )
        )

    def _create(self, rank: int, local_rank: int, world_size: int) -> FakeWorker:
        assert (rank, local_rank, world_size) == (0, 0, 1)
        worker = FakeWorker(
            WorkerContext(
                config=EngineConfig(),
                model=_MODEL,
                max_model_len=8,
                create_loader=_unused,
                create_sampler=_unused,
                create_attention=_unused,
            ),
            self.raises,
        )
        self.workers.append(worker)
        return worker

    @property
    def worker(self) -> FakeWorker:
        [worker] = self.workers
        return worker

    def started(self) -> Harness:
        self.executor.start()
        return self

    def hold(self) -> None:
        """Forwards and `hold` wait from now on."""
        self.worker.begun.clear()
        self.worker.gate.clear()


def _unused(*args: Any) -> Any:
    raise AssertionError("this worker makes no other parts")


@pytest.fixture
def harness() -> Iterator[Harness]:
    """Every test ends without a thread of the executor."""
    before = set(threading.enumerate())
    made = Harness()
    yield made
    for worker in made.workers:
        worker.gate.set()
    made.executor.shutdown()
    assert set(threading.enumerate()) <= before


def step(number: int) -> SchedulerOutput:
    return SchedulerOutput(
        step=number,
        slots=np.zeros(1, np.int32),
        num_scheduled_tokens=np.ones(1, np.int32),
        num_computed_tokens=np.zeros(1, np.int32),
        samples=np.ones(1, np.bool_),
        total_num_scheduled_tokens=1,
    )


def in_background(function: Callable[[], T]) -> Future[T]:
    """Run it in a thread; the future of its result."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(function())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run).start()
    return future


def until_refused(executor: ThreadExecutor) -> None:
    """Until a shutdown in another thread has taken effect."""
    while True:
        try:
            executor.check_health()
        except EngineDeadError:
            return


def test_the_worker_lives_in_one_thread_that_is_not_the_callers(harness: Harness) -> None:
    executor = harness.started().executor
    assert executor.kv_layer_specs() == []
    assert executor.available_kv_bytes() == 77
    executor.initialize_kv_cache(
        KVCacheConfig(num_blocks=2, block_size=1, groups=(), bytes_per_block=1)
    )
    executor.execute_model(step(1))
    assert len(executor.sample_tokens(None).result(_WAIT_S).token_ids) == 0
    executor.collective_rpc("add", (1, 2))
    executor.check_health()
    executor.shutdown()
    assert harness.worker.calls == [
        "__init__",
        "init_device",
        "load_model",
        "kv_layer_specs",
        "available_kv_bytes",
        "initialize_kv_cache",
        "execute_model 1",
        "sample_tokens",
        "add",
        "shutdown",
    ]
    assert len(harness.worker.threads) == 1
    assert threading.get_ident() not in harness.worker.threads


def test_a_step_returns_at_once_and_futures_complete_in_order(harness: Harness) -> None:
    executor = harness.started().executor
    harness.hold()
    ended: list[int] = []
    futures: list[Future[Any]] = []
    for number in (1, 2):
        futures += [executor.execute_model(step(number)), executor.sample_tokens(None)]
    for place, future in enumerate(futures):
        future.add_done_callback(lambda _, place=place: ended.append(place))  # type: ignore[misc]
    assert harness.worker.begun.wait(_WAIT_S)
    assert not any(future.done() for future in futures)
    harness.worker.gate.set()
    futures[-1].result(_WAIT_S)
    assert ended == [0, 1, 2, 3]


def test_a_failed_forward_is_not_sampled_and_the_next_one_is(harness: Harness) -> None:
    executor = harness.started().executor
    harness.raises["execute_model 1"] = ValueError("no forward")
    forward, sampling = executor.execute_model(step(1)), executor.sample_tokens(None)
    with pytest.raises(ValueError, match="no forward"):
        forward.result(_WAIT_S)
    with pytest.raises(EngineDeadError, match="the forward failed"):
        sampling.result(_WAIT_S)
    executor.check_health()
    executor.execute_model(step(2))
    executor.sample_tokens(None).result(_WAIT_S)
    assert harness.worker.calls.count("sample_tokens") == 1


def test_sampling_without_a_forward_is_refused(harness: Harness) -> None:
    with pytest.raises(InternalError, match="without a forward"):
        harness.started().executor.sample_tokens(None)


def test_rpc(harness: Harness) -> None:
    executor = harness.started().executor
    assert executor.collective_rpc("add", (1, 2)) == [3]
    assert executor.collective_rpc("add", (1, 2), timeout=_WAIT_S) == [3]
    with pytest.raises(KeyError, match=r"unknown worker command 'subtract'.*'add'"):
        executor.collective_rpc("subtract")


@pytest.mark.parametrize("error", [ValueError("too much"), TimeoutError("the device is slow")])
def test_rpc_raises_the_workers_own_exception_with_its_rank(
    harness: Harness, error: Exception
) -> None:
    executor = harness.started().executor
    harness.raises["add"] = error
    with pytest.raises(type(error)) as caught:
        executor.collective_rpc("add", (1, 2), timeout=_WAIT_S)
    assert caught.value is error
    assert error.__notes__ == ["raised by the worker of rank 0"]
    executor.check_health()


def test_after_a_timeout_the_worker_goes_on_with_what_it_has_begun(harness: Harness) -> None:
    executor = harness.started().executor
    harness.hold()
    told = ""
    while not harness.worker.begun.is_set():  # until it began within the time
        with pytest.raises(TimeoutError) as caught:
            executor.collective_rpc("hold", timeout=0.01)
        told = str(caught.value)
    assert told.startswith("the worker did not answer 'hold' within 0.01 s; it goes on with it")
    harness.worker.gate.set()
    assert executor.collective_rpc("add", (1, 2)) == [3]
    assert harness.worker.calls.count("hold") == 1


def test_after_a_timeout_what_has_not_begun_is_never_run(harness: Harness) -> None:
    executor = harness.started().executor
    harness.hold()
    forward = executor.execute_model(step(1))
    assert harness.worker.begun.wait(_WAIT_S)
    with pytest.raises(TimeoutError, match="it had not begun, and will not run it"):
        executor.collective_rpc("add", (1, 2), timeout=0.001)
    with pytest.raises(KeyError):
        executor.collective_rpc("subtract", timeout=0.001)
    harness.worker.gate.set()
    executor.sample_tokens(None).result(_WAIT_S)
    assert forward.done()
    assert "add" not in harness.worker.calls


def test_shutdown_twice_and_before_start(harness: Harness) -> None:
    executor = harness.executor
    executor.shutdown()
    with pytest.raises(EngineDeadError, match="not started"):
        executor.check_health()
    with pytest.raises(EngineDeadError, match="not started"):
        executor.execute_model(step(1))
    executor.start()
    executor.shutdown()
    executor.shutdown()
    assert harness.worker.calls.count("shutdown") == 1
    with pytest.raises(EngineDeadError, match="shut down"):
        executor.check_health()
    with pytest.raises(EngineDeadError, match="shut down"):
        executor.execute_model(step(1)).result(_WAIT_S)
    with pytest.raises(EngineDeadError, match="shut down"):
        executor.collective_rpc("add", (1, 2))


def test_shutdown_waits_for_the_forward_in_flight_and_fails_what_has_not_begun(
    harness: Harness,
) -> None:
    executor = harness.started().executor
    harness.hold()
    forward, sampling = executor.execute_model(step(1)), executor.sample_tokens(None)
    assert harness.worker.begun.wait(_WAIT_S)
    closed = in_background(executor.shutdown)
    until_refused(executor)
    assert not closed.done()
    harness.worker.gate.set()
    closed.result(_WAIT_S)
    assert forward.result(_WAIT_S) is None
    with pytest.raises(EngineDeadError, match="shut down"):
        sampling.result(_WAIT_S)
    assert harness.worker.calls[-2:] == ["execute_model 1", "shutdown"]


def test_what_the_workers_shutdown_raises_is_raised_once(harness: Harness) -> None:
    executor = harness.started().executor
    harness.raises["shutdown"] = OSError("the device is gone")
    with pytest.raises(OSError, match="the device is gone"):
        executor.shutdown()
    executor.shutdown()


@pytest.mark.parametrize("call", ["init_device", "load_model"])
def test_a_start_that_fails_raises_the_workers_error(harness: Harness, call: str) -> None:
    harness.raises[call] = OSError("no such device")
    with pytest.raises(OSError, match="no such device"):
        harness.started()
    harness.executor.shutdown()
    assert harness.worker.calls[-1] == "shutdown"


def test_a_lost_worker_is_told_once_and_calls_fail_with_the_cause(harness: Harness) -> None:
    executor = harness.started().executor
    told: list[str] = []
    executor.on_failure(told.append)
    harness.hold()
    harness.raises["execute_model 1"] = SystemExit(3)
    forward, sampling = executor.execute_model(step(1)), executor.sample_tokens(None)
    waiting = executor.execute_model(step(2))
    harness.worker.gate.set()
    for future in (forward, sampling, waiting):
        with pytest.raises(EngineDeadError, match="the worker's thread ended: SystemExit: 3"):
            future.result(_WAIT_S)
    with pytest.raises(EngineDeadError, match="SystemExit: 3") as caught:
        executor.check_health()
    assert isinstance(caught.value.__cause__, SystemExit)
    with pytest.raises(EngineDeadError, match="SystemExit: 3"):
        executor.collective_rpc("add", (1, 2))
    executor.shutdown()
    assert told == ["the worker's thread ended: SystemExit: 3"]
    assert harness.worker.calls[-1] == "shutdown"
    executor.on_failure(told.append)
    assert len(told) == 2


def test_a_worker_that_is_lost_at_its_start(harness: Harness) -> None:
    harness.raises["load_model"] = SystemExit("no licence")
    with pytest.raises(EngineDeadError, match="SystemExit: no licence"):
        harness.started()


def test_shutdown_is_no_failure(harness: Harness) -> None:
    told: list[str] = []
    harness.started().executor.on_failure(told.append)
    harness.executor.shutdown()
    assert told == []
