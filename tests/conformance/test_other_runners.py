"""The suites of executors and workers ask for nothing beyond the contract: parts that are right,
and unlike the built-in ones, pass all of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import pytest

from builtin_plugins.executor_uniproc.executor import UniprocExecutor
from builtin_plugins.worker_scripted.options import ScriptedOptions
from builtin_plugins.worker_scripted.worker import ScriptedWorker
from framework.conformance.catalogue import suites_by_kind
from framework.conformance.report import Outcome, TestEntry
from framework.conformance.run import conform
from hookspecs import EngineHooks, PluginInfo, Provider, hookimpl
from hookspecs.contracts.executor import Executor, ExecutorContext
from hookspecs.contracts.worker import Worker, WorkerContext
from tests.conformance.mutants.executor import Threaded, TwoWorkers
from tests.conformance.mutants.mutant import providing


class Elsewhere(UniprocExecutor):
    """Makes its worker itself, as one does that starts processes."""

    def __init__(self, context: ExecutorContext) -> None:
        super().__init__(msgspec.structs.replace(context, create_worker=self._make))

    def _make(self, rank: int, local_rank: int, world_size: int) -> Worker:
        context = self.context
        return ScriptedWorker(
            WorkerContext(
                config=context.config,
                options=ScriptedOptions(),
                model=context.model,
                max_model_len=context.max_model_len,
                create_loader=_unused,
                create_sampler=_unused,
                create_attention=_unused,
            )
        )


class _ElsewherePlugin(EngineHooks):
    PLUGIN = PluginInfo(name="elsewhere", api=">=1.0,<2")

    @hookimpl
    def register_executors(self) -> Iterable[Provider[Executor]]:
        yield Provider("elsewhere", f"{__name__}:{Elsewhere.__name__}")


ELSEWHERE = _ElsewherePlugin()
OTHER_PROCESS = "test_it_runs_in_an_engine_process"
"""Needs a plugin that another process can import."""


def test_an_executor_may_make_its_workers_itself() -> None:
    tests = _run(ELSEWHERE, "executor")
    assert not [test.name for test in tests if test.outcome is Outcome.FAILED]
    apart = {test.name: test.reason for test in tests if "create_worker" in test.reason}
    assert "test_commands_answer_in_rank_order" in apart
    assert "test_a_step_gives_two_futures" not in apart
    assert all(reason.startswith("workers in this process") for reason in apart.values())


@pytest.mark.parametrize("part", [TwoWorkers, Threaded])
def test_executors_may_have_ranks_and_threads(part: type[Executor]) -> None:
    names = suites_by_kind()["executor"].cases().keys() - {OTHER_PROCESS}
    tests = _run(providing("executor", part), "executor", only=names)
    assert not [test.name for test in tests if test.outcome is Outcome.FAILED]
    assert not [test.name for test in tests if "create_worker" in test.reason]


def test_a_worker_may_have_windows() -> None:
    options = {"scripted": {"sliding_window": 6, "num_groups": 2}}
    tests = _run("worker-scripted", "worker", settings={"plugins": {"options": options}})
    assert not [test.name for test in tests if test.outcome is Outcome.FAILED]


def _run(plugin: str | object, kind: str, **arguments: Any) -> list[TestEntry]:
    arguments.setdefault("only", suites_by_kind()[kind].cases().keys())
    report = conform(plugin, quiet=True, **arguments)
    tests = [test for test in report.tests if test.suite.startswith(f"{kind}:")]
    assert tests
    return tests


def _unused(*arguments: Any) -> Any:
    raise NotImplementedError("a plain request needs none")
