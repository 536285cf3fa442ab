"""The entry point. Imported in several processes, so it stays light: the policy itself is
named as a string and imported only where it is used."""

from __future__ import annotations

from collections.abc import Iterable

from hookspecs import EngineHooks, PluginInfo, ProcessRole, Provider, hookimpl
from hookspecs.contracts.kv_cache import EvictionPolicy

__all__ = ["FrequencyPlugin", "plugin"]


class FrequencyPlugin(EngineHooks):
    """Offers one eviction policy."""

    PLUGIN = PluginInfo(
        name="frequency",
        api=">=1.0,<2",
        description="Eviction policy: least frequently used first, with aging",
        roles=frozenset({ProcessRole.LAUNCHER, ProcessRole.CORE}),
    )

    @hookimpl
    def register_eviction_policies(self) -> Iterable[Provider[EvictionPolicy]]:
        """Offer the eviction policy `frequency`."""
        yield Provider(
            "frequency",
            "frequency_eviction.policy:FrequencyEviction",
            description="Shared prefixes outlast prompts that came once; both grow old.",
        )


plugin = FrequencyPlugin()
