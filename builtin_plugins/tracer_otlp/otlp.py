"""The tracer `otlp`. Front-end process."""

from __future__ import annotations

import logging
import threading
from typing import Final

from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, ParentBased, Sampler, TraceIdRatioBased
from opentelemetry.trace import SpanKind, Status, StatusCode, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from builtin_plugins.tracer_otlp.attributes import FAILURES, attributes_of, operation_of
from builtin_plugins.tracer_otlp.exporter import CollectorExporter
from builtin_plugins.tracer_otlp.options import OtlpOptions
from builtin_plugins.tracer_otlp.phases import phases_of, started_at_ns
from hookspecs.contracts.stats import FinishedRequest, Tracer, TracerContext

__all__ = ["OtlpTracer"]

logger = logging.getLogger(__name__)

SCOPE: Final = "engine-framework"
MAX_QUEUED: Final = 8192
"""Spans; the oldest are dropped beyond it."""
MAX_BATCH: Final = 512
INTERVAL_S: Final = 2.0
PROBE_S: Final = 5.0
"""The longest that the start waits for a collector."""


class OtlpTracer(Tracer):
    """One span an output, with a child for each phase it went through. As OpenTelemetry's
    conventions have it, its name is the operation and the model: `text_completion NAME`.

    Spans are made when an output ends and sent by a thread; a caller's W3C trace context
    (https://www.w3.org/TR/trace-context/) is their parent, and its decision on sampling is kept.
    Nothing of the process's global OpenTelemetry state is used or set. At start one span is sent,
    `startup`, so that a wrong endpoint is said then.
    """

    def __init__(self, context: TracerContext) -> None:
        super().__init__(context)
        options: OtlpOptions = context.options
        self._timeout_s = options.timeout_s
        self._exporter = CollectorExporter(options.url, options.headers, options.timeout_s)
        resource = Resource({"service.name": options.service_name})
        self._probe(resource)
        self._provider = _provider(resource, ParentBased(TraceIdRatioBased(options.sample_ratio)))
        self._provider.add_span_processor(
            BatchSpanProcessor(
                self._exporter,
                max_queue_size=MAX_QUEUED,
                max_export_batch_size=MAX_BATCH,
                schedule_delay_millis=INTERVAL_S * 1e3,
                export_timeout_millis=options.timeout_s * 1e3,
            )
        )
        self._tracer = self._provider.get_tracer(SCOPE)
        self._propagator = TraceContextTextMapPropagator()

    @property
    def num_lost(self) -> int:
        """Spans that no collector took."""
        return self._exporter.num_lost

    def on_request_finished(self, request: FinishedRequest) -> None:
        span = self._tracer.start_span(
            f"{operation_of(request)} {self.context.model}",
            context=self._propagator.extract(request.trace_headers, context=Context()),
            kind=SpanKind.SERVER,
            start_time=started_at_ns(request),
        )
        if not span.is_recording():
            return
        span.set_attributes(attributes_of(request, self.context.model))
        if request.stats.finish_reason in FAILURES:
            span.set_status(Status(StatusCode.ERROR, str(request.stats.finish_reason)))
        inside = set_span_in_context(span, Context())
        for phase in phases_of(request):
            child = self._tracer.start_span(phase.name, inside, start_time=phase.begin_ns)
            child.end(phase.end_ns)
        span.end(request.ended_at_ns)

    def close(self) -> None:
        """Send what is left, within `timeout_s`."""
        self._exporter.hurry()
        flush = threading.Thread(target=self._provider.shutdown, name="otlp-flush", daemon=True)
        flush.start()
        flush.join(self._timeout_s)
        if flush.is_alive():
            logger.warning("the last spans were not taken within %g s", self._timeout_s)
        if self.num_lost:
            logger.warning("%d spans were lost in all", self.num_lost)

    def _probe(self, resource: Resource) -> None:
        span = _provider(resource, ALWAYS_ON).get_tracer(SCOPE).start_span("startup", Context())
        span.set_attribute("gen_ai.request.model", self.context.model)
        span.end()
        if isinstance(span, ReadableSpan):
            self._exporter.try_once([span], min(self._timeout_s, PROBE_S))
        else:
            logger.warning("OpenTelemetry's SDK is switched off, so no span is made")


def _provider(resource: Resource, sampler: Sampler) -> TracerProvider:
    return TracerProvider(sampler=sampler, resource=resource, shutdown_on_exit=False)
