"""The entry point. Imported in several processes, so it stays light: the stat logger itself is
named as a string and imported only where it is used."""

from __future__ import annotations

from collections.abc import Iterable

from hookspecs import EngineHooks, PluginInfo, ProcessRole, Provider, hookimpl
from hookspecs.contracts.stats import StatLogger

from sqlite_logger.options import SqliteOptions

__all__ = ["SqlitePlugin", "plugin"]


class SqlitePlugin(EngineHooks):
    """Offers one stat logger."""

    PLUGIN = PluginInfo(
        name="sqlite",
        api=">=1.0,<2",
        description="Stat logger: finished requests and intervals in a SQLite database",
        roles=frozenset({ProcessRole.LAUNCHER, ProcessRole.FRONTEND}),
    )

    @hookimpl
    def register_stat_loggers(self) -> Iterable[Provider[StatLogger]]:
        """Offer the stat logger `sqlite`."""
        yield Provider(
            "sqlite",
            "sqlite_logger.stat_logger:SqliteStatLogger",
            options=SqliteOptions,
            description="Writes finished requests and interval totals to a SQLite database.",
        )


plugin = SqlitePlugin()
