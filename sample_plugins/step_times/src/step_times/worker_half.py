"""The half that measures. Worker process, the worker's thread."""

from __future__ import annotations

import time
from collections.abc import Callable

from hookspecs.contracts.side_channel import WorkerHalf
from hookspecs.types.step import ModelRunnerOutput, SchedulerOutput

from step_times.messages import Measured, Step

__all__ = ["StepTimesWorker"]

Clock = Callable[[], float]


class StepTimesWorker(WorkerHalf):
    """Several steps may be in flight, so each is known by its number. Where the executor runs its
    worker in the core process, the processor time is of both."""

    def __init__(
        self, clock: Clock = time.perf_counter, cpu_clock: Clock = time.process_time
    ) -> None:
        """Clocks in seconds."""
        self._clock, self._cpu_clock = clock, cpu_clock
        self._begun: dict[int, tuple[Step, float, float]] = {}
        """By the number of the step: its message, and both clocks when it was launched."""

    def on_step(self, scheduled: SchedulerOutput, message: Step | None) -> None:
        if message is None:  # the core half has failed, and nobody waits for times
            return
        self._begun[scheduled.step] = message, self._clock(), self._cpu_clock()

    def reply(self, scheduled: SchedulerOutput, output: ModelRunnerOutput) -> Measured | None:
        begun = self._begun.pop(scheduled.step, None)
        if begun is None:
            return None
        step, begin, cpu_begin = begun
        return Measured(
            step=step, worker_s=self._clock() - begin, cpu_s=self._cpu_clock() - cpu_begin
        )
