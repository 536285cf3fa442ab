"""The entry point. Imported in several processes, so it stays light: the scheduler itself is
named as a string and imported only where it is used."""

from __future__ import annotations

from collections.abc import Iterable

from hookspecs import EngineHooks, PluginInfo, ProcessRole, Provider, hookimpl
from hookspecs.contracts.scheduler import Scheduler

__all__ = ["ReservingPlugin", "plugin"]


class ReservingPlugin(EngineHooks):
    """Offers one scheduler."""

    PLUGIN = PluginInfo(
        name="reserving",
        api=">=1.0,<2",
        description="Scheduler without preemption: blocks are reserved for the largest length",
        roles=frozenset({ProcessRole.LAUNCHER, ProcessRole.CORE}),
    )

    @hookimpl
    def register_schedulers(self) -> Iterable[Provider[Scheduler]]:
        """Offer the scheduler `reserving`, which declares no capability: it does not preempt."""
        yield Provider(
            "reserving",
            "reserving_scheduler.scheduler:ReservingScheduler",
            description="Steady time per token, at the price of fewer requests at once.",
        )


plugin = ReservingPlugin()
