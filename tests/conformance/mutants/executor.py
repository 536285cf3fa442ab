"""Broken executors."""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, ClassVar

import msgspec

from builtin_plugins.executor_uniproc.executor import UniprocExecutor
from hookspecs import EngineHooks, PluginInfo, Provider, hookimpl
from hookspecs.contracts.executor import Executor, ExecutorCapability, ExecutorContext
from hookspecs.contracts.worker import Worker
from hookspecs.errors import EngineDeadError
from hookspecs.events import ConfigResolved
from hookspecs.types.kv import KVCacheConfig, KVLayerSpec
from hookspecs.types.step import GrammarOutput, ModelRunnerOutput, SchedulerOutput
from tests.conformance.mutants.mutant import Mutant, providing

__all__ = ["MUTANTS"]


class TwoWorkers(UniprocExecutor):
    """Two ranks in this process, right in itself: what is wrong with two of them derives from
    it."""

    capabilities: ClassVar[frozenset[ExecutorCapability]] = frozenset(
        {ExecutorCapability.TENSOR_PARALLEL}
    )
    workers: tuple[Worker, ...] = ()

    def start(self) -> None:
        for rank in range(2):  # kept one by one, so that all are shut down if the next one fails
            self.workers = (*self.workers, self.context.create_worker(rank, rank, 2))
        self._worker = self.workers[0]
        for worker in self.workers:
            worker.init_device()
        for worker in self.workers:
            worker.load_model()

    def available_kv_bytes(self) -> int:
        return min(worker.available_kv_bytes() for worker in self.workers)

    def initialize_kv_cache(self, kv_config: KVCacheConfig) -> None:
        for worker in self.workers:
            worker.initialize_kv_cache(kv_config)

    def execute_model(self, scheduled: SchedulerOutput) -> Future[None]:
        if len(self.workers) > 1:
            self.workers[1].execute_model(scheduled)
        return super().execute_model(scheduled)

    def sample_tokens(self, grammar: GrammarOutput | None) -> Future[ModelRunnerOutput]:
        if len(self.workers) > 1:
            self.workers[1].sample_tokens(grammar)
        return super().sample_tokens(grammar)

    def collective_rpc(
        self, command: str, args: Sequence[Any] = (), *, timeout: float | None = None
    ) -> list[Any]:
        results = []
        for rank, worker in enumerate(self.workers):
            run = worker.commands()[command]
            try:
                results.append(run(*args))
            except Exception as error:
                error.add_note(f"raised by the worker of rank {rank}")
                raise
        return results

    def shutdown(self) -> None:
        workers, self.workers, self._worker = self.workers, (), None
        for worker in workers:
            worker.shutdown()


class Threaded(UniprocExecutor):
    """Its worker has a thread of its own; right in itself, too."""

    pool: ThreadPoolExecutor | None = None

    def start(self) -> None:
        self.pool = ThreadPoolExecutor(1)
        self.pool.submit(super().start).result()

    def _call(self, call: Callable[[], Any]) -> Any:
        if self.pool is None:
            raise EngineDeadError("the executor has no worker")
        return self.pool.submit(call).result()

    def kv_layer_specs(self) -> list[KVLayerSpec]:
        return list(self._call(super().kv_layer_specs))

    def available_kv_bytes(self) -> int:
        return int(self._call(super().available_kv_bytes))

    def initialize_kv_cache(self, kv_config: KVCacheConfig) -> None:
        self._call(lambda: self.worker.initialize_kv_cache(kv_config))

    def execute_model(self, scheduled: SchedulerOutput) -> Future[None]:
        assert self.pool is not None
        return self.pool.submit(lambda: self.worker.execute_model(scheduled))

    def sample_tokens(self, grammar: GrammarOutput | None) -> Future[ModelRunnerOutput]:
        assert self.pool is not None
        return self.pool.submit(lambda: self.worker.sample_tokens(grammar))

    def collective_rpc(
        self, command: str, args: Sequence[Any] = (), *, timeout: float | None = None
    ) -> list[Any]:
        assert self.pool is not None
        run = super().collective_rpc
        return self.pool.submit(lambda: run(command, args)).result(timeout)

    def shutdown(self) -> None:
        if self.pool is not None:
            self.pool.submit(super().shutdown).result()
            self.pool.shutdown()
            self.pool = None


# Start


class LoadsWithoutADevice(UniprocExecutor):
    def start(self) -> None:
        self._worker = worker = self.context.create_worker(0, 0, 1)
        worker.load_model()
        worker.init_device()


class MakesOneRankTwice(TwoWorkers):
    def start(self) -> None:
        self.workers = tuple(self.context.create_worker(0, rank, 2) for rank in range(2))
        self._worker = self.workers[0]
        for worker in self.workers:
            worker.init_device()
            worker.load_model()


class LoadsInAnotherThread(UniprocExecutor):
    def start(self) -> None:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(super().start).result()


class ForgetsWhatFailed(UniprocExecutor):
    """A start that fails half-way leaves its worker behind."""

    def start(self) -> None:
        worker = self.context.create_worker(0, 0, 1)
        worker.init_device()
        worker.load_model()
        self._worker = worker


class HidesWhyItDoesNotStart(UniprocExecutor):
    def start(self) -> None:
        try:
            super().start()
        except Exception:
            raise EngineDeadError("the worker did not start") from None


# Cache


class CountsTheFirstOnly(TwoWorkers):
    def available_kv_bytes(self) -> int:
        return self.workers[0].available_kv_bytes()


class TellsOneStage(TwoWorkers):
    capabilities: ClassVar[frozenset[ExecutorCapability]] = frozenset(
        {ExecutorCapability.PIPELINE_PARALLEL}
    )


# Steps


class GivesNoFutures(UniprocExecutor):
    def sample_tokens(self, grammar: GrammarOutput | None) -> Future[ModelRunnerOutput]:
        output: Any = self.worker.sample_tokens(grammar)
        return output  # type: ignore[no-any-return]


class LosesAWakeUp(UniprocExecutor):
    """The third future never completes."""

    def __init__(self, context: ExecutorContext) -> None:
        super().__init__(context)
        self._steps = itertools.count(1)

    def execute_model(self, scheduled: SchedulerOutput) -> Future[None]:
        launched = super().execute_model(scheduled)
        return Future() if next(self._steps) == 3 else launched


class RunsTwice(UniprocExecutor):
    """Asks again for what it has already run, as after a message that seemed lost."""

    def execute_model(self, scheduled: SchedulerOutput) -> Future[None]:
        super().execute_model(scheduled)
        return super().execute_model(scheduled)


class LagsBehind(UniprocExecutor):
    """Gives the tokens of the step before."""

    before: Future[ModelRunnerOutput] | None = None

    def sample_tokens(self, grammar: GrammarOutput | None) -> Future[ModelRunnerOutput]:
        now = super().sample_tokens(grammar)
        given, self.before = self.before or now, now
        return given


class CompletesLate(UniprocExecutor):
    """The forward's future completes after that of the tokens."""

    late: Future[None] | None = None

    def execute_model(self, scheduled: SchedulerOutput) -> Future[None]:
        super().execute_model(scheduled).result()
        self.late = Future()
        return self.late

    def sample_tokens(self, grammar: GrammarOutput | None) -> Future[ModelRunnerOutput]:
        sampled = super().sample_tokens(grammar)
        late = self.late
        assert late is not None
        sampling: Future[ModelRunnerOutput] = Future()

        def complete() -> None:
            sampling.set_result(sampled.result())
            late.set_result(None)

        # Not before both have listeners.
        threading.Timer(0.01, complete).start()
        return sampling


class SwallowsFailures(UniprocExecutor):
    def execute_model(self, scheduled: SchedulerOutput) -> Future[None]:
        launched = super().execute_model(scheduled)
        if launched.exception() is None:
            return launched
        done: Future[None] = Future()
        done.set_result(None)
        return done


class RenamesFailures(UniprocExecutor):
    def sample_tokens(self, grammar: GrammarOutput | None) -> Future[ModelRunnerOutput]:
        sampled = super().sample_tokens(grammar)
        if sampled.exception() is None:
            return sampled
        failed: Future[ModelRunnerOutput] = Future()
        failed.set_exception(RuntimeError("a step has failed"))
        return failed


class IsNotAsynchronous(Threaded):
    """Says that it does not wait for the forward, and does."""

    capabilities: ClassVar[frozenset[ExecutorCapability]] = frozenset(
        {ExecutorCapability.ASYNC_STEPPING}
    )

    def execute_model(self, scheduled: SchedulerOutput) -> Future[None]:
        launched = super().execute_model(scheduled)
        launched.exception()
        return launched


# Commands


class AnswersBackwards(TwoWorkers):
    """Wrong rank in collective_rpc."""

    def collective_rpc(
        self, command: str, args: Sequence[Any] = (), *, timeout: float | None = None
    ) -> list[Any]:
        return super().collective_rpc(command, args, timeout=timeout)[::-1]


class CallsAnything(UniprocExecutor):
    def collective_rpc(
        self, command: str, args: Sequence[Any] = (), *, timeout: float | None = None
    ) -> list[Any]:
        if not hasattr(self.worker, command):
            raise KeyError(command)
        method = getattr(self.worker, command)
        return [method(*args) if callable(method) else method]


class AnswersWhatItDoesNotKnow(UniprocExecutor):
    def collective_rpc(
        self, command: str, args: Sequence[Any] = (), *, timeout: float | None = None
    ) -> list[Any]:
        if command not in self.worker.commands():
            return []
        return super().collective_rpc(command, args, timeout=timeout)


class NamesNoRank(UniprocExecutor):
    def collective_rpc(
        self, command: str, args: Sequence[Any] = (), *, timeout: float | None = None
    ) -> list[Any]:
        return [self.worker.commands()[command](*args)]


class WaitsForEver(Threaded):
    """Takes no notice of the timeout, though it could."""

    def collective_rpc(
        self, command: str, args: Sequence[Any] = (), *, timeout: float | None = None
    ) -> list[Any]:
        known = self.worker.commands()
        return [self._call(lambda: known[command](*args))]


# Health and end


class IsAlwaysWell(UniprocExecutor):
    def check_health(self) -> None:
        """All is well."""


class StopsOnce(UniprocExecutor):
    def shutdown(self) -> None:
        if self._worker is None:
            raise RuntimeError("there is nothing to shut down")
        super().shutdown()


class KeepsItsWorker(UniprocExecutor):
    def shutdown(self) -> None:
        self._worker = None


class StopsInFrontOfTheForward(Threaded):
    """Shuts its worker down in the caller's thread, while the forward runs in the other."""

    def shutdown(self) -> None:
        if self.pool is None:
            return
        pool, self.pool = self.pool, None
        UniprocExecutor.shutdown(self)
        pool.submit(lambda: None).result()
        pool.shutdown()

    def execute_model(self, scheduled: SchedulerOutput) -> Future[None]:
        worker = self.worker

        def run() -> None:
            worker.execute_model(scheduled)
            worker.sample_tokens(None)

        assert self.pool is not None
        return self.pool.submit(run)


class LeavesAThread(UniprocExecutor):
    def start(self) -> None:
        super().start()
        self._idle = threading.Event()
        threading.Thread(target=self._idle.wait, args=(10,), name="idle", daemon=True).start()


class CriesWolf(UniprocExecutor):
    """Takes the end of its worker for a loss."""

    callback: Callable[[str], None] | None = None

    def on_failure(self, callback: Callable[[str], None]) -> None:
        self.callback = callback

    def shutdown(self) -> None:
        super().shutdown()
        if self.callback is not None:
            self.callback("the worker is gone")


# In an engine


class ForgetsResumed(UniprocExecutor):
    """Gives requests that resume after preemption other tokens: it sends their prompt alone to a
    worker that has them all."""

    def sample_tokens(self, grammar: GrammarOutput | None) -> Future[ModelRunnerOutput]:
        future = super().sample_tokens(grammar)
        output = future.result()
        if self.resumed and len(output.token_ids):
            output.token_ids[0] = 5
        return future

    resumed = False

    def execute_model(self, scheduled: SchedulerOutput) -> Future[None]:
        self.resumed = any(
            len(new.token_ids) > new.num_prompt_tokens for new in scheduled.new_requests
        )
        return super().execute_model(scheduled)


class AnswersForItsWorker(UniprocExecutor):
    """Leaves sleep and wake_up out, and takes the worker's methods for commands."""

    def collective_rpc(
        self, command: str, args: Sequence[Any] = (), *, timeout: float | None = None
    ) -> list[Any]:
        method: Any = getattr(self.worker, command or "device", None)
        return [method() if command == "kv_layer_specs" else None]


class NeedsTheLauncher(UniprocExecutor):
    """Uses what only the process that launches has imported."""

    def start(self) -> None:
        if "pytest" not in sys.modules:
            raise RuntimeError("this executor works in the launcher's process only")
        super().start()


class _NamedPlugin(EngineHooks):
    """Importable by name, as a plugin must be for other processes."""

    PLUGIN = PluginInfo(name="mutant", api=">=1.0,<2")

    @hookimpl
    def register_executors(self) -> Iterable[Provider[Executor]]:
        yield Provider("mutant", f"{__name__}:{NeedsTheLauncher.__name__}")


NAMED = _NamedPlugin()


class _Quietly(EngineHooks):
    """Drops a request for several ranks or stages instead of letting it be refused."""

    PLUGIN = PluginInfo(name="mutant", api=">=1.0,<2")

    @hookimpl
    def register_executors(self) -> Iterable[Provider[Executor]]:
        yield Provider("mutant", "builtin_plugins.executor_uniproc.executor:UniprocExecutor")

    @hookimpl
    def adjust_config(self, event: ConfigResolved) -> ConfigResolved | None:
        executor = msgspec.structs.replace(
            event.config.executor, tensor_parallel_size=1, pipeline_parallel_size=1
        )
        return ConfigResolved(config=msgspec.structs.replace(event.config, executor=executor))


def _mutant(fault: str, part: type[Executor], *caught_by: str) -> Mutant:
    return Mutant("executor", fault, providing("executor", part), caught_by)


MUTANTS = [
    _mutant("loads before there is a device", LoadsWithoutADevice, "test_workers_start_in_order"),
    _mutant("makes one rank twice", MakesOneRankTwice, "test_workers_start_in_order"),
    _mutant("loads in another thread", LoadsInAnotherThread, "test_a_worker_has_one_thread"),
    _mutant("leaves what failed to start", ForgetsWhatFailed, "test_a_failing_start_comes_out"),
    _mutant("hides why it fails", HidesWhyItDoesNotStart, "test_a_failing_start_comes_out"),
    _mutant("bytes of the first rank", CountsTheFirstOnly, "test_cache_facts_come_from_workers"),
    _mutant("layers of one stage", TellsOneStage, "test_every_stage_tells_its_layers"),
    _mutant("gives no futures", GivesNoFutures, "test_a_step_gives_two_futures"),
    _mutant("lost wake-up", LosesAWakeUp, "test_a_step_gives_two_futures"),
    _mutant("runs a step twice", RunsTwice, "test_each_step_gives_its_own_tokens"),
    _mutant("tokens of the step before", LagsBehind, "test_each_step_gives_its_own_tokens"),
    _mutant("late futures", CompletesLate, "test_futures_complete_in_order"),
    _mutant("swallows failures", SwallowsFailures, "test_failures_of_a_step_come_out"),
    _mutant(
        "renames failures",
        RenamesFailures,
        "test_failures_of_a_step_come_out",
        "test_a_failing_worker_stops_the_engine",
    ),
    _mutant("is not asynchronous", IsNotAsynchronous, "test_a_step_does_not_wait_for_the_forward"),
    _mutant("wrong rank order", AnswersBackwards, "test_commands_answer_in_rank_order"),
    _mutant("calls what is unmarked", CallsAnything, "test_only_commands_can_be_called"),
    _mutant("knows all commands", AnswersWhatItDoesNotKnow, "test_only_commands_can_be_called"),
    _mutant("names no rank", NamesNoRank, "test_a_failing_command_names_its_rank"),
    _mutant("waits for ever", WaitsForEver, "test_a_command_has_a_time_limit"),
    _mutant("is always well", IsAlwaysWell, "test_health"),
    _mutant("stops once", StopsOnce, "test_shutdown_at_any_time"),
    _mutant("keeps its worker", KeepsItsWorker, "test_shutdown_at_any_time"),
    _mutant(
        "stops before the forward",
        StopsInFrontOfTheForward,
        "test_shutdown_with_a_step_in_flight",
    ),
    _mutant("leaves a thread", LeavesAThread, "test_nothing_is_left"),
    _mutant("cries wolf", CriesWolf, "test_no_failure_is_told_without_one"),
    _mutant("other tokens when resumed", ForgetsResumed, "test_tokens_are_the_workers"),
    _mutant("answers for its worker", AnswersForItsWorker, "test_engines_command_workers"),
    Mutant(
        "executor",
        "needs the launcher",
        NAMED,
        ("test_it_runs_in_an_engine_process",),
    ),
    Mutant(
        "executor",
        "drops what it can not do",
        _Quietly(),
        ("test_tensor_parallel_is_refused", "test_pipeline_parallel_is_refused"),
    ),
]
