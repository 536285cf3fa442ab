"""The entry point. Imported in several processes, so it stays light: the channel itself is named
as a string and imported only where it is used."""

from __future__ import annotations

from collections.abc import Iterable

from hookspecs import EngineHooks, PluginInfo, ProcessRole, Provider, hookimpl
from hookspecs.contracts.side_channel import SideChannel

from step_times.options import StepTimesOptions

__all__ = ["StepTimesPlugin", "plugin"]


class StepTimesPlugin(EngineHooks):
    """Offers one side channel, whose halves live in two kinds of process."""

    PLUGIN = PluginInfo(
        name="step-times",
        api=">=1.0,<2",
        description="Side channel: where the time of steps goes",
        roles=frozenset({ProcessRole.LAUNCHER, ProcessRole.CORE, ProcessRole.WORKER}),
    )

    @hookimpl
    def register_side_channels(self) -> Iterable[Provider[SideChannel]]:
        """Offer the side channel `step-times`."""
        yield Provider(
            "step-times",
            "step_times.channel:StepTimes",
            options=StepTimesOptions,
            description="Time of steps in worker and core, by what they compute.",
        )


plugin = StepTimesPlugin()
