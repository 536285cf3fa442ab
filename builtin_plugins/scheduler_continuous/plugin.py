"""Entry point: registers the `continuous` scheduler."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hookspecs import EngineHooks, PluginInfo, ProcessRole, Provider, hookimpl
from hookspecs.contracts.scheduler import SchedulerCapability

__all__ = ["SchedulerContinuousPlugin", "plugin"]


class SchedulerContinuousPlugin(EngineHooks):
    """The default scheduler."""

    PLUGIN = PluginInfo(
        name="scheduler-continuous",
        api=">=1.0,<2",
        description="Continuous batching with chunked prefill, prefix reuse and preemption",
        roles=frozenset({ProcessRole.LAUNCHER, ProcessRole.CORE}),
    )

    @hookimpl
    def register_schedulers(self) -> Iterable[Provider[Any]]:
        """Offer `continuous`."""
        yield Provider(
            "continuous",
            "builtin_plugins.scheduler_continuous.scheduler:ContinuousScheduler",
            capabilities=frozenset({SchedulerCapability.PREEMPTION}),
            description="One rule: computed tokens catch up with known ones",
        )


plugin = SchedulerContinuousPlugin()
