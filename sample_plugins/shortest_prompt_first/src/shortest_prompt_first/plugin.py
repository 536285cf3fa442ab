"""The entry point. Imported in several processes, so it stays light: the policy itself is
named as a string and imported only where it is used."""

from __future__ import annotations

from collections.abc import Iterable

from hookspecs import EngineHooks, PluginInfo, ProcessRole, Provider, hookimpl
from hookspecs.contracts.policy import PolicyCapability, SchedulingPolicy

from shortest_prompt_first.options import ShortestPromptFirstOptions

__all__ = ["ShortestPromptFirstPlugin", "plugin"]


class ShortestPromptFirstPlugin(EngineHooks):
    """Offers one scheduling policy."""

    PLUGIN = PluginInfo(
        name="shortest-prompt-first",
        api=">=1.0,<2",
        description="Scheduling policy: short prompts first, with aging",
        roles=frozenset({ProcessRole.LAUNCHER, ProcessRole.CORE}),
    )

    @hookimpl
    def register_scheduling_policies(self) -> Iterable[Provider[SchedulingPolicy]]:
        """Offer the policy `shortest-prompt-first`."""
        yield Provider(
            "shortest-prompt-first",
            "shortest_prompt_first.policy:ShortestPromptFirst",
            options=ShortestPromptFirstOptions,
            capabilities=frozenset({PolicyCapability.DYNAMIC_ORDER}),
            description="Requests with short prompts start first; waiting makes up for length.",
        )


plugin = ShortestPromptFirstPlugin()
