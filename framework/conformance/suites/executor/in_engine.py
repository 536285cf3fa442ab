"""Executors in a real engine, and what they refuse there."""

from __future__ import annotations

from typing import Any

from framework.conformance.base import lacking
from framework.conformance.subject import Subject
from framework.conformance.suites.executor.base import UNMARKED, ExecutorPart, error_of
from framework.conformance.worlds.engines import greedy, run_prompts
from framework.conformance.worlds.patience import within
from hookspecs.contracts.executor import ExecutorCapability
from hookspecs.errors import CommandError, EngineDeadError, FrameworkError, UnsupportedFeatureError

__all__ = ["InEngine"]


class InEngine(ExecutorPart):
    """An engine runs, commands and stops its workers through the executor."""

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
            raised = error_of(lambda: engine.generate([[1, 2, 3]], fault))
            assert isinstance(raised, FrameworkError), f"generating ended with {raised!r}"
            assert "script raises" in str(raised), (
                f"the error does not hold the worker's own message, `... the script raises at "
                f"output 1`: {raised}"
            )
            again = error_of(lambda: engine.generate([[1, 2, 3]], greedy(2)))
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
                error_of(lambda name=name: engine.collective_rpc(name))  # type: ignore[misc]
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


def _refuses(subject: Subject, setting: str) -> None:
    try:
        engine = subject.launch(executor={setting: 2})
    except UnsupportedFeatureError:
        return
    engine.shutdown()
    raise AssertionError(f"an engine started with executor.{setting} = 2, which is not declared")
