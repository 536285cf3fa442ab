"""With wrappers around a phase, what implements it is to blame for what it gives, and they for
what they make of it."""

from __future__ import annotations

from collections.abc import Generator
from concurrent.futures import Future
from typing import Any

import pytest

from builtin_plugins.executor_uniproc.executor import UniprocExecutor
from framework.plugins.failure import describe
from hookspecs import PluginInfo, hookimpl
from hookspecs.errors import ContractViolation, PluginError, StepError
from hookspecs.types.step import GrammarOutput, ModelRunnerOutput, SchedulerOutput
from tests.conformance.mutants.mutant import providing
from tests.core.scripted import greedy, launch_scripted

EXECUTOR, WRAPPER = "mutant", "around"


class Around:
    """Wraps both phases of the executor; may change what comes."""

    PLUGIN = PluginInfo(
        name=WRAPPER, api=">=1.0,<2", provides=("wrap:execute_model", "wrap:sample_tokens")
    )

    def __init__(self, change: Any = lambda given: given) -> None:
        self._change = change

    @hookimpl(wrapper=True)
    def execute_model(
        self, scheduled: SchedulerOutput
    ) -> Generator[None, Future[None], Future[None]]:
        return (yield)

    @hookimpl(wrapper=True)
    def sample_tokens(
        self, grammar: GrammarOutput | None
    ) -> Generator[None, Future[ModelRunnerOutput], Future[ModelRunnerOutput]]:
        given = yield
        changed: Future[ModelRunnerOutput] = self._change(given)
        return changed


class GivesNoFuture(UniprocExecutor):
    def execute_model(self, scheduled: SchedulerOutput) -> Any:
        super().execute_model(scheduled)


class LosesTokens(UniprocExecutor):
    def sample_tokens(self, grammar: GrammarOutput | None) -> Future[ModelRunnerOutput]:
        sampling = super().sample_tokens(grammar)
        sampling.result().token_ids = sampling.result().token_ids[:0]
        return sampling


class FailsElsewhere(UniprocExecutor):
    """As one whose worker is in another process, so that the error has no frame of a plugin."""

    def sample_tokens(self, grammar: GrammarOutput | None) -> Future[ModelRunnerOutput]:
        failed: Future[ModelRunnerOutput] = Future()
        failed.set_exception(ZeroDivisionError("in the worker"))
        return failed


def error_of(executor: type[Any], around: Around) -> PluginError:
    with (
        launch_scripted(
            plugins=[around, providing("executor", executor)], executor={"name": "mutant"}
        ) as engine,
        pytest.raises(PluginError) as raised,
    ):
        engine.generate([[1, 2, 3]], greedy(3))
    return raised.value


@pytest.mark.parametrize(
    ("executor", "kind"),
    [
        (GivesNoFuture, ContractViolation),
        (LosesTokens, ContractViolation),
        (FailsElsewhere, StepError),
    ],
)
def test_the_executor_is_to_blame_for_what_it_gives(
    executor: type[Any], kind: type[PluginError]
) -> None:
    error = error_of(executor, Around())
    assert isinstance(error, kind), describe(error)
    assert error.plugin == EXECUTOR


def test_the_wrapper_is_to_blame_for_what_it_makes_of_it() -> None:
    def lose(given: Future[ModelRunnerOutput]) -> Future[ModelRunnerOutput]:
        given.result().token_ids = given.result().token_ids[:0]
        return given

    assert error_of(UniprocExecutor, Around(lose)).plugin == WRAPPER
    assert error_of(UniprocExecutor, Around(lambda given: None)).plugin == WRAPPER
