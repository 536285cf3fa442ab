"""Suite of executors, driven by hand and in a real engine.

Most tests drive the executor with workers of the kit's own, which `create_worker` of its context
makes. An executor that starts processes lets its workers be made there, of the configured worker;
it is found out by a start whether `create_worker` is called, and if not, those tests are reported
as not declared, for the lack of workers in this process. All others run with the worker `scripted`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest

from framework.conformance.base import NOT_DECLARED, Conformance, lacking, requires
from framework.conformance.subject import Subject
from framework.conformance.worlds.engines import greedy, run_prompts
from framework.conformance.worlds.executors import (
    KV_CONFIG,
    ExecutorBench,
    expected_tokens,
    makes_workers_here,
    steps,
    wait_for,
)
from framework.conformance.worlds.leftovers import Leftovers
from framework.conformance.worlds.patience import within
from framework.conformance.worlds.told_worker import WorkerFault, kv_bytes_of, layers_of
from hookspecs.contracts.executor import ExecutorCapability
from hookspecs.errors import (
    CommandError,
    EngineDeadError,
    FrameworkError,
    UnsupportedFeatureError,
)
from hookspecs.types.step import ModelRunnerOutput

__all__ = ["ExecutorConformance"]

MakeBench = Callable[..., ExecutorBench]
STEPS = 4
UNMARKED = ("no_such_command", "unmarked", "load_model", "shutdown", "device", "__init__", "")
"""Names that are no commands of a worker, though some are its attributes."""
TOO_LATE_S = 0.05
"""Seconds that a command is given which does not answer by itself."""


class ExecutorConformance(Conformance):
    """Executors call workers in order, hand on what these say, and leave nothing behind."""

    kind = "executor"

    @pytest.fixture
    def make(self, subject: Subject) -> Iterator[MakeBench]:
        """Makes executors that are not started; they are shut down after the test."""
        made: list[ExecutorBench] = []

        def make(capability: ExecutorCapability | None = None) -> ExecutorBench:
            made.append(ExecutorBench(subject, capability))
            return made[-1]

        yield make
        for bench in made:
            bench.close()

    @pytest.fixture
    def ours(self, subject: Subject, make: MakeBench) -> MakeBench:
        """The same, for a test of workers that the executor makes with `create_worker`."""
        if not makes_workers_here(subject):
            pytest.skip(
                f"{NOT_DECLARED}workers in this process: start() did not call create_worker"
            )
        return make

    # Start

    def test_workers_start_in_order(self, ours: MakeBench) -> None:
        """Requires workers that are made with create_worker.
        Does: starts the executor and runs a step.
        Must: make the ranks from 0 on, each once, and call each worker in the order of its
        contract.
        """
        bench = ours()
        bench.start()
        bench.run(next(steps(1)))
        size = bench.world_size
        ranks = sorted((rank, world_size) for rank, _, world_size in bench.desk.made)
        assert ranks == [(rank, size) for rank in range(size)], (
            f"workers were made as (rank, local rank, world size) {bench.desk.made}; needed are "
            f"the ranks below {size}, each once"
        )
        for rank in range(size):
            called = bench.desk.methods(rank)
            once = list(dict.fromkeys(called))
            order = [method for method in _ORDER if method in called]
            lost = [method for method in _NEEDED if method not in called]
            assert not lost, f"{', '.join(lost)} of the worker of rank {rank} was never called"
            assert once == order, f"rank {rank} was called {called}; the order is {order}"
            repeated = [method for method in _NEEDED if called.count(method) > 1]
            assert not repeated, f"{repeated} of rank {rank} was called more than once: {called}"

    def test_a_worker_has_one_thread(self, ours: MakeBench) -> None:
        """Requires workers that are made with create_worker.
        Does: starts, runs steps and a command, shuts down, and looks in which threads the worker
        was called.
        Must: make each worker and call it in one thread, since devices are bound to threads.
        """
        bench = ours()
        bench.start()
        for scheduled in steps(STEPS):
            bench.run(scheduled)
        bench.executor.collective_rpc("answer", (1,))
        bench.executor.shutdown()
        for rank in range(bench.world_size):
            threads = {call.thread for call in bench.desk.calls if call.rank == rank}
            assert len(threads) == 1, f"rank {rank} was called in {len(threads)} threads"

    def test_a_failing_start_comes_out(self, ours: MakeBench) -> None:
        """Requires workers that are made with create_worker.
        Does: lets the last rank fail in its constructor, in init_device and in load_model.
        Must: raise the worker's own error from start, and be shut down like any other, with the
        workers that were made.
        """
        for method in ("construct", "init_device", "load_model"):
            bench = ours()
            fault = WorkerFault(f"{method} fails")
            bench.desk.faults[method, bench.world_size - 1] = fault
            raised = _error_of(bench.executor.start)
            assert raised is not None, f"start returned though {method} of a worker raised"
            assert _is(raised, fault), f"start raised {raised!r}; the worker raised {fault!r}"
            within(bench.executor.shutdown, f"shutdown after a failure of {method}")
            for worker in bench.desk.workers:
                rank = worker.context.rank
                assert "shutdown" in bench.desk.methods(rank), (
                    f"rank {rank} was not shut down after a start that failed in {method}"
                )

    # Cache

    def test_cache_facts_come_from_workers(self, ours: MakeBench) -> None:
        """Requires workers that are made with create_worker.
        Does: asks for layers and bytes, and gives the shape of the cache.
        Must: give the layers of a worker, the bytes of the one that has fewest, and hand the shape
        to every worker.
        """
        bench = ours()
        bench.executor.start()
        size = bench.world_size
        specs = bench.executor.kv_layer_specs()
        wanted = layers_of(0)
        assert specs[: len(wanted)] == wanted, f"kv_layer_specs gave {specs}, the worker {wanted}"
        fewest = min(map(kv_bytes_of, range(size)))
        available = bench.executor.available_kv_bytes()
        assert available == fewest, f"available_kv_bytes is {available}; the smallest has {fewest}"
        bench.executor.initialize_kv_cache(KV_CONFIG)
        for worker in bench.desk.workers:
            assert worker.kv_config == KV_CONFIG, (
                f"rank {worker.context.rank} got the cache shape {worker.kv_config}"
            )

    @requires(ExecutorCapability.PIPELINE_PARALLEL)
    def test_every_stage_tells_its_layers(self, ours: MakeBench) -> None:
        """Requires pipeline_parallel, and workers that are made with create_worker.
        Does: asks for the layers of two pipeline stages.
        Must: give those of one rank of each stage, in the order of the stages.
        """
        bench = ours(ExecutorCapability.PIPELINE_PARALLEL)
        bench.executor.start()
        specs = bench.executor.kv_layer_specs()
        wanted = [*layers_of(0), *layers_of(1)]
        assert specs == wanted, f"kv_layer_specs gave {specs}; the stages have {wanted}"

    # Steps

    def test_a_step_gives_two_futures(self, make: MakeBench) -> None:
        """Requires nothing.
        Does: runs steps, each with execute_model and then sample_tokens.
        Must: give a concurrent.futures.Future each time, which completes with None and with the
        output of that step.
        """
        bench = make()
        bench.start()
        for scheduled in steps(STEPS):
            launched = bench.executor.execute_model(scheduled)
            sampling = bench.executor.sample_tokens(None)
            for name, future in (("execute_model", launched), ("sample_tokens", sampling)):
                assert isinstance(future, Future), (
                    f"{name} gave a {type(future).__name__}; needed is a concurrent.futures.Future"
                )
            nothing = wait_for(launched, "the future of execute_model")
            assert nothing is None, f"the future of execute_model gave {nothing!r}; it gives None"
            output = wait_for(sampling, "the future of sample_tokens")
            assert isinstance(output, ModelRunnerOutput), (
                f"the future of sample_tokens gave {output!r}, which is no ModelRunnerOutput"
            )
            given = output.num_sampled.tolist()
            assert given == [1, 1], f"a step whose two rows sample gave them {given} tokens"

    def test_each_step_gives_its_own_tokens(self, ours: MakeBench) -> None:
        """Requires workers that are made with create_worker.
        Does: runs steps whose tokens depend on all that were computed before.
        Must: run each step once on every worker, and give its tokens, not those of another step.
        """
        bench = ours()
        bench.start()
        for number, scheduled in enumerate(steps(STEPS)):
            tokens = bench.run(scheduled).token_ids.tolist()
            wanted = expected_tokens(STEPS)[number]
            assert tokens == wanted, f"step {number} gave {tokens}; the worker's are {wanted}"
        for rank in range(bench.world_size):
            for method in ("execute_model", "sample_tokens"):
                count = bench.desk.methods(rank).count(method)
                assert count == STEPS, f"{method} of rank {rank} ran {count} times in {STEPS} steps"

    def test_futures_complete_in_order(self, make: MakeBench) -> None:
        """Requires nothing.
        Does: notes the order in which the futures of several steps complete, with as many steps in
        flight as max_concurrent_batches allows.
        Must: complete the forward of a step before its tokens, and both before the next step's.
        """
        bench = make()
        bench.start()
        depth = bench.executor.max_concurrent_batches
        assert type(depth) is int and depth >= 1, f"max_concurrent_batches is {depth!r}"
        done: list[str] = []
        named: list[tuple[str, Future[Any]]] = []
        for number, scheduled in enumerate(steps(STEPS)):
            pair: list[tuple[str, Future[Any]]] = [
                (f"forward {number}", bench.executor.execute_model(scheduled)),
                (f"tokens {number}", bench.executor.sample_tokens(None)),
            ]
            named += pair
            for name, future in pair:
                future.add_done_callback(lambda _, name=name: done.append(name))  # type: ignore[misc]
            if number + 1 >= depth:
                wait_for(named[2 * (number + 1 - depth) + 1][1], f"tokens {number + 1 - depth}")
        wait_for(named[-1][1], named[-1][0])
        wanted = [name for name, _ in named]
        assert done == wanted, f"futures completed in the order {done}"

    def test_failures_of_a_step_come_out(self, ours: MakeBench) -> None:
        """Requires workers that are made with create_worker.
        Does: lets the forward, and then sampling, fail on the last rank.
        Must: give the worker's own error: in the future of that call, or from it at once.
        """
        for method in ("execute_model", "sample_tokens"):
            bench = ours()
            bench.start()
            fault = WorkerFault(f"{method} fails")
            bench.desk.faults[method, bench.world_size - 1] = fault
            scheduled = next(steps(1))

            def forward(bench: ExecutorBench = bench, scheduled: Any = scheduled) -> None:
                wait_for(bench.executor.execute_model(scheduled), "the future of execute_model")

            def sample(bench: ExecutorBench = bench) -> None:
                wait_for(bench.executor.sample_tokens(None), "the future of sample_tokens")

            raised = _error_of(forward)
            if method == "sample_tokens":
                assert raised is None, f"the forward raised {raised!r}, before anything failed"
                raised = _error_of(sample)
            assert raised is not None, f"the failure of {method} did not come out"
            assert _is(raised, fault), f"{method} raised {raised!r}; the worker raised {fault!r}"

    @requires(ExecutorCapability.ASYNC_STEPPING)
    def test_a_step_does_not_wait_for_the_forward(self, ours: MakeBench) -> None:
        """Requires async_stepping, and workers that are made with create_worker.
        Does: holds back the forward, and calls execute_model and sample_tokens.
        Must: return from both while the forward has not ended, with futures that complete once it
        has.
        """
        bench = ours()
        bench.start()
        gate = bench.desk.hold("execute_model")
        launched = bench.executor.execute_model(next(steps(1)))
        sampling = bench.executor.sample_tokens(None)
        assert not gate.in_own_thread and not gate.forced, (
            "execute_model or sample_tokens waits for the forward; async_stepping must not be "
            "declared then"
        )
        early = [f.done() for f in (launched, sampling)]
        assert early == [False, False], "a future was complete before the forward had ended"
        gate.open()
        wait_for(launched, "the future of execute_model")
        wait_for(sampling, "the future of sample_tokens")

    # Commands

    def test_commands_answer_in_rank_order(self, ours: MakeBench) -> None:
        """Requires workers that are made with create_worker.
        Does: runs a command on all workers several times.
        Must: run it once on each, with the arguments as given, and list the results by rank.
        """
        bench = ours()
        bench.start()
        for value in range(3):
            results = bench.executor.collective_rpc("answer", (value,))
            wanted = [[rank, value] for rank in range(bench.world_size)]
            assert results == wanted, f"answer({value}) gave {results}; by rank they are {wanted}"
        for rank in range(bench.world_size):
            count = bench.desk.methods(rank).count("answer")
            assert count == 3, f"a command given 3 times ran {count} times on rank {rank}"

    def test_only_commands_can_be_called(self, make: MakeBench) -> None:
        """Requires nothing.
        Does: calls names that are no commands, among them methods of workers.
        Must: raise KeyError, and call nothing that is not marked as a command.
        """
        bench = make()
        bench.start()
        before = len(bench.desk.calls)
        for name in UNMARKED:
            raised = _error_of(lambda name=name: bench.executor.collective_rpc(name))  # type: ignore[misc]
            assert isinstance(raised, KeyError), (
                f"collective_rpc({name!r}) gave {raised!r}; for what is no command it raises "
                "KeyError"
            )
        called = [call.method for call in bench.desk.calls[before:]]
        assert not called, f"names that are no commands called {called} on a worker"

    def test_a_failing_command_names_its_rank(self, ours: MakeBench) -> None:
        """Requires workers that are made with create_worker.
        Does: lets a command fail on the last rank, with an error of its own and with KeyError.
        Must: raise the worker's own exception with a note that holds its rank.
        """
        bench = ours()
        bench.start()
        rank = bench.world_size - 1
        for fault in (WorkerFault("the command fails"), KeyError("of the worker")):
            bench.desk.faults["answer", rank] = fault
            raised = _error_of(lambda: bench.executor.collective_rpc("answer", (1,)))
            assert raised is not None, "a command returned though a worker raised"
            assert type(raised) is type(fault) and raised.args == fault.args, (
                f"the command raised {raised!r}; the worker raised {fault!r}"
            )
            notes = getattr(raised, "__notes__", [])
            assert any(str(rank) in note for note in notes), (
                f"no note of the error names rank {rank}; its notes are {notes}"
            )
        bench.desk.faults = {}
        answer = bench.executor.collective_rpc("answer", (2,))[-1]
        assert answer == [rank, 2], f"after a failed command the next one answered {answer}"

    def test_a_command_has_a_time_limit(self, ours: MakeBench) -> None:
        """Requires workers that are made with create_worker.
        Does: gives a command that does not answer some hundredths of a second.
        Must: raise TimeoutError, unless it calls workers in its own thread, which can not be
        interrupted; and answer the next command.
        """
        bench = ours()
        bench.start()
        gate = bench.desk.hold("answer")
        raised = _error_of(
            lambda: bench.executor.collective_rpc("answer", (1,), timeout=TOO_LATE_S)
        )
        in_time = not gate.forced
        bench.desk.release()
        assert gate.in_own_thread or (in_time and isinstance(raised, TimeoutError)), (
            f"a command with a timeout of {TOO_LATE_S} s that did not answer ended with {raised!r}"
        )
        results = bench.executor.collective_rpc("answer", (2,))
        wanted = [[rank, 2] for rank in range(bench.world_size)]
        assert results == wanted, f"after a command that was too late the next gave {results}"

    # Health and end

    def test_health(self, make: MakeBench) -> None:
        """Requires nothing.
        Does: checks the health after the start, after a step, and after the shutdown.
        Must: return while its workers live, and raise EngineDeadError once they do not.
        """
        bench = make()
        bench.start()
        bench.executor.check_health()
        bench.run(next(steps(1)))
        bench.executor.check_health()
        bench.executor.shutdown()
        raised = _error_of(bench.executor.check_health)
        assert isinstance(raised, EngineDeadError), (
            f"check_health after the shutdown gave {raised!r}, no EngineDeadError"
        )

    def test_shutdown_at_any_time(self, make: MakeBench) -> None:
        """Requires nothing.
        Does: shuts down before the start, right after it, and after a step, twice each time.
        Must: return each time, and shut down every worker that was made.
        """
        for what in ("before the start", "after the start", "after a step"):
            bench = make()
            if what != "before the start":
                bench.executor.start()
            if what == "after a step":
                bench.executor.initialize_kv_cache(KV_CONFIG)
                bench.run(next(steps(1)))
            for time in ("the first", "the second"):
                raised = _error_of(lambda b=bench: within(b.executor.shutdown, "shutdown"))  # type: ignore[misc]
                assert raised is None, f"{time} shutdown {what} raised {raised!r}"
            for rank in range(len(bench.desk.workers)):
                assert "shutdown" in bench.desk.methods(rank), (
                    f"the worker of rank {rank} was not shut down, {what}"
                )

    def test_shutdown_with_a_step_in_flight(self, make: MakeBench) -> None:
        """Requires nothing.
        Does: shuts down after execute_model, without waiting for the forward, which ends soon
        after.
        Must: return, and call no worker afterwards.
        """
        bench = make()
        bench.start()
        gate = bench.desk.hold("execute_model")
        bench.executor.execute_model(next(steps(1)))
        opener = threading.Timer(TOO_LATE_S, gate.open)
        opener.start()
        within(bench.executor.shutdown, "shutdown with a step in flight")
        opener.join()
        for rank in range(len(bench.desk.workers)):
            called = bench.desk.methods(rank)
            assert called[-1] == "shutdown", f"rank {rank} was called {called[-1]} after shutdown"

    def test_nothing_is_left(self, make: MakeBench) -> None:
        """Requires nothing.
        Does: starts, runs steps, shuts down, and looks for threads and child processes.
        Must: leave none behind.
        """
        leftovers = Leftovers()
        bench = make()
        bench.start()
        for scheduled in steps(2):
            bench.run(scheduled)
        bench.executor.shutdown()
        names = leftovers.names()
        assert not names, f"these live on after the shutdown: {', '.join(names)}"

    def test_no_failure_is_told_without_one(self, make: MakeBench) -> None:
        """Requires nothing.
        Does: asks to be told of lost workers, then runs steps, commands that fail, and shuts down.
        Must: tell of none: an error that a worker raises, or a shutdown, loses no worker.
        """
        bench = make()
        told: list[str] = []
        bench.executor.on_failure(told.append)
        bench.start()
        bench.run(next(steps(1)))
        _error_of(lambda: bench.executor.collective_rpc("no_such_command"))
        bench.executor.shutdown()
        assert not told, f"on_failure told of {told}, though no worker was lost"

    # In an engine

    def test_tokens_are_the_workers(self, subject: Subject, seed: int) -> None:
        """Requires nothing.
        Does: generates in an engine with a small cache, so that requests are preempted, with the
        executor and with the default one.
        Must: give the same tokens; an executor hands on what workers say.
        """
        small: dict[str, Any] = {"cache": {"num_blocks": 12}}
        with subject.launch(**small) as engine:
            given = run_prompts(engine, seed)
        with subject.launch(**small, executor={"name": "uniproc"}) as engine:
            wanted = run_prompts(engine, seed)
        assert given == wanted, "tokens are other ones than with the executor `uniproc`"

    def test_a_failing_worker_stops_the_engine(self, subject: Subject) -> None:
        """Requires nothing.
        Does: lets the worker of an engine raise in a step, then asks for more, and shuts down.
        Must: let the worker's message reach the caller, and the shutdown return.
        """
        with subject.launch() as engine:
            fault = greedy(4, extensions={"scripted": {"raise_at": 1}})
            raised = _error_of(lambda: engine.generate([[1, 2, 3]], fault))
            assert isinstance(raised, FrameworkError), f"generating ended with {raised!r}"
            assert "script raises" in str(raised), (
                f"the error does not hold the worker's own message, `... the script raises at "
                f"output 1`: {raised}"
            )
            again = _error_of(lambda: engine.generate([[1, 2, 3]], greedy(2)))
            assert isinstance(again, EngineDeadError), f"a stopped engine gave {again!r}"
            within(engine.shutdown, "the shutdown of an engine that has failed")

    def test_engines_command_workers(self, subject: Subject, seed: int) -> None:
        """Requires nothing.
        Does: puts the workers of an engine to sleep and wakes them, and gives commands that there
        are not.
        Must: run the first between steps, so that tokens stay, and refuse the others with
        CommandError.
        """
        with subject.launch() as engine:
            before = run_prompts(engine, seed)
            engine.sleep(2)
            engine.wake_up()
            after = run_prompts(engine, seed)
            refused = [
                _error_of(lambda name=name: engine.collective_rpc(name))  # type: ignore[misc]
                for name in UNMARKED
            ]
        assert before == after, "tokens changed after the workers had slept"
        wrong = [error for error in refused if not isinstance(error, CommandError)]
        assert not wrong, f"what is no command gave {wrong[0]!r} instead of CommandError"

    def test_it_runs_in_an_engine_process(self, subject: Subject, seed: int) -> None:
        """Requires nothing.
        Does: runs an engine with the executor in a process of its own.
        Must: give the same tokens there; a server runs every engine so.
        """
        with subject.launch() as engine:
            here = run_prompts(engine, seed)
        with subject.launch(engine={"process": "separate"}) as engine:
            there = run_prompts(engine, seed)
        assert here == there, "tokens depend on which process the engine runs in"

    # What it does not declare

    @lacking(ExecutorCapability.TENSOR_PARALLEL)
    def test_tensor_parallel_is_refused(self, subject: Subject) -> None:
        """Requires an executor that does not declare tensor_parallel.
        Does: asks for a tensor_parallel_size of 2.
        Must: let the start be refused with UnsupportedFeatureError, not run with one rank.
        """
        _refuses(subject, "tensor_parallel_size")

    @lacking(ExecutorCapability.PIPELINE_PARALLEL)
    def test_pipeline_parallel_is_refused(self, subject: Subject) -> None:
        """Requires an executor that does not declare pipeline_parallel.
        Does: asks for a pipeline_parallel_size of 2.
        Must: let the start be refused with UnsupportedFeatureError, not run with one stage.
        """
        _refuses(subject, "pipeline_parallel_size")


_ORDER = (
    "construct",
    "init_device",
    "load_model",
    "kv_layer_specs",
    "available_kv_bytes",
    "initialize_kv_cache",
    "execute_model",
    "sample_tokens",
)
_NEEDED = ("init_device", "load_model", "initialize_kv_cache", "execute_model", "sample_tokens")
"""Of every rank; the others may be asked of some."""


def _error_of(call: Callable[[], Any]) -> Exception | None:
    """What it raises; a failed check of the kit comes out."""
    try:
        call()
    except AssertionError:
        raise
    except Exception as error:
        return error
    return None


def _is(raised: BaseException, fault: Exception) -> bool:
    """Whether it is the worker's own error, or was raised because of it."""
    cause: BaseException | None = raised
    while cause is not None:
        if type(cause) is type(fault) and cause.args == fault.args:
            return True
        cause = cause.__cause__
    return False


def _refuses(subject: Subject, setting: str) -> None:
    try:
        engine = subject.launch(executor={setting: 2})
    except UnsupportedFeatureError:
        return
    engine.shutdown()
    raise AssertionError(f"an engine started with executor.{setting} = 2, which is not declared")
