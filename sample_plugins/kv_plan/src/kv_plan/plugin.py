"""The entry point. The command line imports it to list and find commands, so it stays light: the
command itself is named as a string and imported only when it is run."""

from __future__ import annotations

from collections.abc import Iterable

from hookspecs import EngineHooks, PluginInfo, ProcessRole, Provider, hookimpl
from hookspecs.contracts.frontend import CliCommand

__all__ = ["KVPlanPlugin", "plugin"]


class KVPlanPlugin(EngineHooks):
    """Offers one command."""

    PLUGIN = PluginInfo(
        name="kv-plan",
        api=">=1.0,<2",
        description="Command: what fits into a KV cache",
        roles=frozenset({ProcessRole.LAUNCHER}),
    )

    @hookimpl
    def register_cli_commands(self) -> Iterable[Provider[CliCommand]]:
        """Offer the command `framework kv-plan`."""
        yield Provider(
            "kv-plan",
            "kv_plan.command:KVPlanCommand",
            description="say how many tokens and requests of a model fit into a KV cache",
        )


plugin = KVPlanPlugin()
