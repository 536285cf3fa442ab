"""`Inside`: a plugin that stands between a wrapper under test and the phase that it wraps."""

from __future__ import annotations

from collections.abc import Callable, Generator
from concurrent.futures import Future

from hookspecs import PluginInfo, hookimpl
from hookspecs.types.columns import Int32Column
from hookspecs.types.step import GrammarOutput, ModelRunnerOutput, SchedulerOutput

__all__ = ["Inside"]

PHASES = ("schedule", "execute_model", "sample_tokens", "update_from_output")


class Inside:
    """Wraps every phase further inside than another plugin, and calls `act` with its name."""

    def __init__(self, outer: str, act: Callable[[str], None]) -> None:
        self.PLUGIN = PluginInfo(
            name="conformance-inside",
            api=">=1.0,<2",
            provides=tuple(f"wrap:{phase}" for phase in PHASES),
            after=(outer,),
        )
        self._act = act

    @hookimpl(wrapper=True)
    def schedule(self) -> Generator[None, SchedulerOutput, SchedulerOutput]:
        """See EngineHooks."""
        self._act("schedule")
        return (yield)

    @hookimpl(wrapper=True)
    def execute_model(
        self, scheduled: SchedulerOutput
    ) -> Generator[None, Future[None], Future[None]]:
        """See EngineHooks."""
        self._act("execute_model")
        return (yield)

    @hookimpl(wrapper=True)
    def sample_tokens(
        self, grammar: GrammarOutput | None
    ) -> Generator[None, Future[ModelRunnerOutput], Future[ModelRunnerOutput]]:
        """See EngineHooks."""
        self._act("sample_tokens")
        return (yield)

    @hookimpl(wrapper=True)
    def update_from_output(
        self, scheduled: SchedulerOutput, applied: Int32Column
    ) -> Generator[None, None, None]:
        """See EngineHooks."""
        self._act("update_from_output")
        return (yield)
