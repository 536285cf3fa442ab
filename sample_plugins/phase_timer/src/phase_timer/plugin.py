"""The entry point, and the wrappers themselves: they are small enough to live in it.

Core process, main thread, but for the callbacks of futures.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

from hookspecs import PluginInfo, ProcessRole, hookimpl
from hookspecs.contracts.base import PluginContext
from hookspecs.events import EngineFailed, EngineStopping
from hookspecs.types.columns import Int32Column
from hookspecs.types.step import GrammarOutput, ModelRunnerOutput, SchedulerOutput

from phase_timer.durations import Durations
from phase_timer.table import table

__all__ = ["PhaseTimerPlugin", "plugin"]

# Below `framework`: of other loggers the command line and engine processes show warnings only.
logger = logging.getLogger("framework.phase_timer")

T = TypeVar("T")


class PhaseTimerPlugin:
    """Times each phase of each step. Not derived from `EngineHooks`: a wrapper is a generator, so
    its signature is not the one of the phase.

    A phase that returns a future ends when the future does: that is seen by a callback, for a
    wrapper that waited would keep the next step from being launched meanwhile.
    """

    PLUGIN = PluginInfo(
        name="phase-timer",
        api=">=1.0,<2",
        description="Wrappers of step phases: how long each takes",
        roles=frozenset({ProcessRole.LAUNCHER, ProcessRole.CORE}),
        provides=(
            "wrap:schedule",
            "wrap:execute_model",
            "wrap:sample_tokens",
            "wrap:update_from_output",
        ),
    )

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        """`clock`: seconds."""
        self._clock = clock
        self.phases = {
            phase: Durations()
            for phase in ("schedule", "execute_model", "sample_tokens", "update_from_output")
        }

    def configured(self, context: PluginContext) -> PhaseTimerPlugin:
        """An object for each engine: two in one process must not count into one table."""
        return PhaseTimerPlugin(self._clock)

    @hookimpl(wrapper=True)
    def schedule(self) -> Generator[None, SchedulerOutput, SchedulerOutput]:
        """Until the step is decided."""
        return (yield from self._call("schedule"))

    @hookimpl(wrapper=True)
    def execute_model(
        self, scheduled: SchedulerOutput
    ) -> Generator[None, Future[None], Future[None]]:
        """Until the forward has been computed, or launched: as the executor completes it."""
        return (yield from self._launch("execute_model"))

    @hookimpl(wrapper=True)
    def sample_tokens(
        self, grammar: GrammarOutput | None
    ) -> Generator[None, Future[ModelRunnerOutput], Future[ModelRunnerOutput]]:
        """Until the tokens are there."""
        return (yield from self._launch("sample_tokens"))

    @hookimpl(wrapper=True)
    def update_from_output(
        self, scheduled: SchedulerOutput, applied: Int32Column
    ) -> Generator[None, None, None]:
        """Until the scheduler has settled its accounts."""
        yield from self._call("update_from_output")

    @hookimpl
    def on_engine_stopping(self, event: EngineStopping) -> None:
        """Tell."""
        self._tell(event.engine_index)

    @hookimpl
    def on_engine_failed(self, event: EngineFailed) -> None:
        """Tell: the row of the phase that failed says so."""
        self._tell(event.engine_index)

    def _call(self, phase: str) -> Generator[None, T, T]:
        begin = self._clock()
        try:
            result = yield
        except BaseException:
            self._ended(phase, begin, failed=True)
            raise
        self._ended(phase, begin)
        return result

    def _launch(self, phase: str) -> Generator[None, Future[T], Future[T]]:
        begin = self._clock()
        try:
            future = yield
        except BaseException:
            self._ended(phase, begin, failed=True)
            raise
        if isinstance(future, Future):
            future.add_done_callback(partial(self._done, phase, begin))
        else:  # not for a wrapper to judge: the kernel does, and names the executor
            self._ended(phase, begin, failed=True)
        return future

    def _done(self, phase: str, begin: float, future: Future[Any]) -> None:
        failed = future.cancelled() or future.exception() is not None
        self._ended(phase, begin, failed=failed)

    def _ended(self, phase: str, begin: float, *, failed: bool = False) -> None:
        self.phases[phase].add(self._clock() - begin, failed=failed)

    def _tell(self, engine_index: int) -> None:
        if any(found.count for found in self.phases.values()):
            logger.info("phases of engine %d, ms:\n%s", engine_index, table(self.phases))


plugin = PhaseTimerPlugin()
