"""Registers the engine command `requests`."""

from __future__ import annotations

from collections.abc import Iterable

from hookspecs import EngineHooks, PluginInfo, ProcessRole, Provider, hookimpl
from hookspecs.contracts.engine_command import EngineCommand


class EngineRequestsPlugin(EngineHooks):
    """The requests of an engine, for an operator."""

    PLUGIN = PluginInfo(
        name="engine-requests",
        api=">=1.0,<2",
        description="An engine command that lists the requests that run and wait",
        roles=frozenset({ProcessRole.LAUNCHER, ProcessRole.CORE}),
    )

    @hookimpl
    def register_engine_commands(self) -> Iterable[Provider[EngineCommand]]:
        yield Provider(
            "requests",
            "builtin_plugins.engine_requests.command:Requests",
            description="The requests that run and wait, the oldest first, with totals.",
        )


plugin = EngineRequestsPlugin()
