"""The half that knows what a step is, and gathers. Core process, main thread."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from hookspecs.contracts.side_channel import CoreHalf
from hookspecs.types.step import SchedulerOutput

from step_times.messages import Measured, Step
from step_times.outlets import Outlet
from step_times.report import Report

__all__ = ["StepTimesCore"]


class StepTimesCore(CoreHalf):
    """The time of a step that is not the worker's counts as the core's: to decide, to hand over,
    to apply tokens and publish them."""

    def __init__(
        self,
        outlet: Outlet,
        *,
        every_steps: int,
        max_num_seqs: int,
        engine_index: int = 0,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """`every_steps`: of one report. `max_num_seqs`: slots are below it. `clock`: seconds."""
        self._outlet = outlet
        self._every_steps = every_steps
        self._engine_index = engine_index
        self._clock = clock
        self._known = np.zeros(max_num_seqs, dtype=np.int64)
        """int64[slots]: tokens that its request had when it started, or resumed."""
        self._replied_at = 0.0
        self._report = Report(engine_index=engine_index)

    def message(self, scheduled: SchedulerOutput) -> Step:
        for request in scheduled.new_requests:
            self._known[request.slot] = len(request.token_ids)
        is_prefill = scheduled.num_computed_tokens < self._known[scheduled.slots]
        prefill_tokens = int(scheduled.num_scheduled_tokens[is_prefill].sum())
        # A request that was there before has been running since: the engine did not idle.
        back_to_back = len(scheduled.new_requests) < scheduled.num_rows
        now = self._clock()
        return Step(
            number=scheduled.step,
            rows=scheduled.num_rows,
            prefill_tokens=prefill_tokens,
            decode_tokens=scheduled.total_num_scheduled_tokens - prefill_tokens,
            sent_at=now,
            between_s=now - self._replied_at if back_to_back else 0.0,
        )

    def on_reply(self, scheduled: SchedulerOutput, reply: Measured) -> None:
        self._replied_at = now = self._clock()
        on_the_way_s = now - reply.step.sent_at - reply.worker_s
        self._report.add(reply, core_s=max(0.0, on_the_way_s) + reply.step.between_s)
        if self._report.num_steps >= self._every_steps:
            self._tell()

    def close(self) -> None:
        try:
            if self._report.num_steps:
                self._tell()
        finally:
            self._outlet.close()

    def _tell(self) -> None:
        # Begun anew first: a report that can not be written is not tried again.
        report, self._report = self._report, Report(engine_index=self._engine_index)
        self._outlet.write(report)
