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
    """One step at a time. Where the executor runs its worker in the core process, the processor
    time is of both."""

    def __init__(
        self, clock: Clock = time.perf_counter, cpu_clock: Clock = time.process_time
    ) -> None:
        """Clocks in seconds."""
        self._clock, self._cpu_clock = clock, cpu_clock
        self._step: Step | None = None
        self._begin = self._cpu_begin = 0.0

    def on_step(self, scheduled: SchedulerOutput, message: Step | None) -> None:
        # None: the core half has failed, and nobody waits for times.
        self._step = message
        self._begin, self._cpu_begin = self._clock(), self._cpu_clock()

    def reply(self, output: ModelRunnerOutput) -> Measured | None:
        if self._step is None:
            return None
        return Measured(
            step=self._step,
            worker_s=self._clock() - self._begin,
            cpu_s=self._cpu_clock() - self._cpu_begin,
        )
