"""The side channel. Constructed in the core process and in each worker process."""

from __future__ import annotations

from typing import Any, ClassVar

from hookspecs.contracts.side_channel import CoreHalf, SideChannel, WorkerHalf
from hookspecs.errors import PluginConfigError

from step_times.core_half import StepTimesCore
from step_times.messages import Measured, Step
from step_times.options import StepTimesOptions
from step_times.outlets import JsonLines, LogTable, Outlet
from step_times.worker_half import StepTimesWorker

__all__ = ["StepTimes"]


class StepTimes(SideChannel):
    """Times of steps. Each half is made where it works, so only the core opens the file."""

    Message: ClassVar[Any] = Step
    Reply: ClassVar[Any] = Measured

    def create_core(self) -> CoreHalf:
        """PluginConfigError when the file can not be opened."""
        options: StepTimesOptions = self.context.options
        outlet: Outlet = LogTable()
        if options.path is not None:
            try:
                outlet = JsonLines(options.path)
            except OSError as error:
                raise PluginConfigError(
                    f"plugins.options.{self.context.name}.path is {options.path!r}, which can "
                    f"not be written: {error}; name a file in a directory that exists and is "
                    "writable",
                    plugin=self.context.plugin,
                ) from error
        return StepTimesCore(
            outlet,
            every_steps=options.every_steps,
            max_num_seqs=self.context.config.scheduler.max_num_seqs,
            engine_index=self.context.engine_index,
        )

    def create_worker(self) -> WorkerHalf:
        return StepTimesWorker()
