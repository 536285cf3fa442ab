"""Registers the stat logger `console`."""

from __future__ import annotations

from collections.abc import Iterable

from hookspecs import EngineHooks, PluginInfo, ProcessRole, Provider, hookimpl
from hookspecs.contracts.stats import StatLogger


class StatsConsolePlugin(EngineHooks):
    """One line of statistics in the log."""

    PLUGIN = PluginInfo(
        name="stats-console",
        api=">=1.0,<2",
        description="One line of statistics in the log, every few seconds",
        roles=frozenset({ProcessRole.LAUNCHER, ProcessRole.FRONTEND}),
    )

    @hookimpl
    def register_stat_loggers(self) -> Iterable[Provider[StatLogger]]:
        yield Provider(
            "console",
            "builtin_plugins.stats_console.console:ConsoleStatLogger",
            description="Logs throughput, load and cache use; silent while nothing happens.",
        )


plugin = StatsConsolePlugin()
