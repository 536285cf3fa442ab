"""`InsideWrappers`: what the selected objects do in the phases that plugins wrap. Core process."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

from framework.core.invariants import check_future, check_result, check_schedule
from framework.core.parts import EngineParts
from hookspecs.errors import ContractViolation
from hookspecs.types.step import GrammarOutput, ModelRunnerOutput, SchedulerOutput

__all__ = ["InsideWrappers"]


class InsideWrappers:
    """Checks what an object gives before the wrappers around it see that, so that what is wrong
    afterwards is theirs."""

    def __init__(self, parts: EngineParts) -> None:
        self._parts = parts
        self._budget = parts.config.scheduler.max_num_batched_tokens
        self._scheduled: SchedulerOutput | None = None
        self._given: dict[str, Future[Any]] = {}
        """Phase to the future that its object gave last."""

    def schedule(self) -> SchedulerOutput:
        """The scheduler's."""
        parts = self._parts
        scheduled = parts.scheduler.schedule()
        try:
            check_schedule(scheduled, parts.table, parts.kv_cache, self._budget)
        except ContractViolation as error:
            raise self._blamed("schedule", error) from None
        return scheduled

    def execute_model(self, scheduled: SchedulerOutput) -> Future[None]:
        """The executor's."""
        self._scheduled = scheduled
        return self._checked("execute_model", self._parts.executor.execute_model(scheduled))

    def sample_tokens(self, grammar: GrammarOutput | None) -> Future[ModelRunnerOutput]:
        """The executor's."""
        parts, scheduled = self._parts, self._scheduled
        sampling = self._checked("sample_tokens", parts.executor.sample_tokens(grammar))
        if scheduled is not None and sampling.done() and sampling.exception() is None:
            try:
                check_result(scheduled, sampling.result(), parts.table, parts.model.info)
            except ContractViolation as error:
                raise self._blamed("sample_tokens", error) from None
        return sampling

    def raised(self, phase: str, error: BaseException) -> bool:
        """Whether an exception came out of the future that the phase's object gave."""
        given = self._given.get(phase)
        return given is not None and given.done() and given.exception() is error

    def _checked(self, phase: str, given: Future[Any]) -> Future[Any]:
        try:
            check_future(phase, given)
        except ContractViolation as error:
            raise self._blamed(phase, error) from None
        self._given[phase] = given
        return given

    def _blamed(self, phase: str, error: ContractViolation) -> ContractViolation:
        error.plugin = self._parts.phase_plugins[phase]
        return error
