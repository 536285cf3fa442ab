"""Registers the stat logger `json_lines`."""

from __future__ import annotations

from collections.abc import Iterable

from builtin_plugins.stats_json_lines.options import JsonLinesOptions
from hookspecs import EngineHooks, PluginInfo, ProcessRole, Provider, hookimpl
from hookspecs.contracts.stats import StatLogger


class StatsJsonLinesPlugin(EngineHooks):
    """Statistics as JSON objects, one a line."""

    PLUGIN = PluginInfo(
        name="stats-json-lines",
        api=">=1.0,<2",
        description="Statistics as JSON objects, one a line, in a file",
        roles=frozenset({ProcessRole.LAUNCHER, ProcessRole.FRONTEND}),
    )

    @hookimpl
    def register_stat_loggers(self) -> Iterable[Provider[StatLogger]]:
        yield Provider(
            "json_lines",
            "builtin_plugins.stats_json_lines.json_lines:JsonLinesStatLogger",
            options=JsonLinesOptions,
            description="Appends finished requests and interval totals to a file.",
        )


plugin = StatsJsonLinesPlugin()
