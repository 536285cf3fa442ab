"""Entry point: registers the policies `fcfs`, `priority`, `fair_share` and `deadline`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from builtin_plugins.policies.options import FairShareOptions, PriorityOptions
from hookspecs import EngineHooks, PluginInfo, ProcessRole, Provider, hookimpl
from hookspecs.contracts.policy import PolicyCapability

__all__ = ["PoliciesPlugin", "plugin"]

_PACKAGE = "builtin_plugins.policies"


class PoliciesPlugin(EngineHooks):
    """The default scheduling policies."""

    PLUGIN = PluginInfo(
        name="policies",
        api=">=1.0,<2",
        description="Scheduling policies: arrival, priority, fair share, deadline",
        roles=frozenset({ProcessRole.LAUNCHER, ProcessRole.CORE}),
    )

    @hookimpl
    def register_scheduling_policies(self) -> Iterable[Provider[Any]]:
        """Offer the four policies."""
        yield Provider(
            "fcfs",
            f"{_PACKAGE}.fcfs:FcfsPolicy",
            description="First come, first served",
        )
        yield Provider(
            "priority",
            f"{_PACKAGE}.priority:PriorityPolicy",
            options=PriorityOptions,
            description="Smaller priority numbers first",
        )
        yield Provider(
            "fair_share",
            f"{_PACKAGE}.fair_share:FairSharePolicy",
            options=FairShareOptions,
            capabilities=frozenset({PolicyCapability.DYNAMIC_ORDER}),
            description="Tokens shared between tenants by weight",
        )
        yield Provider(
            "deadline",
            f"{_PACKAGE}.deadline:DeadlinePolicy",
            description="Earliest deadline (latest time to start) first; requests that miss theirs "
            "are ended",
        )


plugin = PoliciesPlugin()
