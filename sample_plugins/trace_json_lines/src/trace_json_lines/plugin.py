"""The entry point. Imported in several processes, so it stays light: the tracer itself is named
as a string and imported only where it is used."""

from __future__ import annotations

from collections.abc import Iterable

from hookspecs import EngineHooks, PluginInfo, ProcessRole, Provider, hookimpl
from hookspecs.contracts.stats import Tracer

from trace_json_lines.options import TraceJsonLinesOptions

__all__ = ["TraceJsonLinesPlugin", "plugin"]


class TraceJsonLinesPlugin(EngineHooks):
    """Offers one tracer."""

    PLUGIN = PluginInfo(
        name="trace-json-lines",
        api=">=1.0,<2",
        description="Tracer: one JSON object for each output of a request, in a file",
        roles=frozenset({ProcessRole.LAUNCHER, ProcessRole.FRONTEND}),
    )

    @hookimpl
    def register_tracers(self) -> Iterable[Provider[Tracer]]:
        """Offer the tracer `trace-json-lines`."""
        yield Provider(
            "trace-json-lines",
            "trace_json_lines.tracer:JsonLinesTracer",
            options=TraceJsonLinesOptions,
            description="Appends ids, times and token counts of every output to a file.",
        )


plugin = TraceJsonLinesPlugin()
