"""Registers the stat logger `prometheus`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from builtin_plugins.stats_prometheus.options import PrometheusOptions
from hookspecs import EngineHooks, PluginInfo, ProcessRole, Provider, hookimpl
from hookspecs.contracts.stats import StatLogger


class StatsPrometheusPlugin(EngineHooks):
    """Metrics for Prometheus."""

    PLUGIN = PluginInfo(
        name="stats-prometheus",
        api=">=1.0,<2",
        description="Metrics for Prometheus and what reads its text format",
        roles=frozenset({ProcessRole.LAUNCHER, ProcessRole.FRONTEND}),
    )
    REFERENCE_PAGES: ClassVar = {"metrics.md": "builtin_plugins.stats_prometheus.page:metrics_page"}

    @hookimpl
    def register_stat_loggers(self) -> Iterable[Provider[StatLogger]]:
        yield Provider(
            "prometheus",
            "builtin_plugins.stats_prometheus.prometheus:PrometheusStatLogger",
            options=PrometheusOptions,
            description="Counters, gauges and histograms, all front-end processes together.",
            extra="serve",
        )


plugin = StatsPrometheusPlugin()
