"""The entry point. Imported in several processes, so it stays light: what does the work is named
as strings, and each is imported only in the process where it is used."""

from __future__ import annotations

from collections.abc import Iterable

from hookspecs import EngineHooks, PluginInfo, ProcessRole, Provider, hookimpl
from hookspecs.contracts.engine_command import EngineCommand
from hookspecs.contracts.frontend import HttpRoutes

__all__ = ["CacheCensusPlugin", "plugin"]


class CacheCensusPlugin(EngineHooks):
    """Offers both halves: the command in the engine core, the route in the front end."""

    PLUGIN = PluginInfo(
        name="cache-census",
        api=">=1.0,<2",
        description="Who holds the KV cache: an engine command, and a route that asks for it",
        roles=frozenset({ProcessRole.LAUNCHER, ProcessRole.FRONTEND, ProcessRole.CORE}),
    )

    @hookimpl
    def register_engine_commands(self) -> Iterable[Provider[EngineCommand]]:
        """The provider's name is the name of the command."""
        yield Provider(
            "cache-census",
            "cache_census.command:CacheCensus",
            description="Blocks by request, and tokens served by tenant.",
        )

    @hookimpl
    def register_http_routes(self) -> Iterable[Provider[HttpRoutes]]:
        """Mounted by the plugin's name."""
        yield Provider(
            "cache-census",
            "cache_census.routes:CensusRoutes",
            description="GET /plugins/cache-census/: the census of all engines.",
        )


plugin = CacheCensusPlugin()
