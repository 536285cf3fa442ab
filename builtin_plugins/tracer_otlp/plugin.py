"""Registers the tracer `otlp`."""

from __future__ import annotations

from collections.abc import Iterable

from builtin_plugins.tracer_otlp.options import OtlpOptions
from hookspecs import EngineHooks, PluginInfo, ProcessRole, Provider, hookimpl
from hookspecs.contracts.stats import Tracer


class TracerOtlpPlugin(EngineHooks):
    """Spans of requests."""

    PLUGIN = PluginInfo(
        name="tracer-otlp",
        api=">=1.0,<2",
        description="Spans of requests for OpenTelemetry collectors",
        roles=frozenset({ProcessRole.LAUNCHER, ProcessRole.FRONTEND}),
    )

    @hookimpl
    def register_tracers(self) -> Iterable[Provider[Tracer]]:
        yield Provider(
            "otlp",
            "builtin_plugins.tracer_otlp.otlp:OtlpTracer",
            options=OtlpOptions,
            description="Sends a span of every output of a request, by OTLP over HTTP.",
            extra="otlp",
        )


plugin = TracerOtlpPlugin()
