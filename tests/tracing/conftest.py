"""A collector of OTLP over HTTP in the test's process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)


@dataclass
class Span:
    """A span as it arrived."""

    name: str
    kind: int
    trace_id: str
    span_id: str
    parent_id: str
    begin: int
    end: int
    status: int
    attributes: dict[str, Any]
    resource: dict[str, Any]


@dataclass
class Collector:
    """What was received. It answers with `status`, once `open` is set."""

    url: str
    status: int = 200
    num_rejected: int = 0
    num_answered: int = 0
    spans: list[Span] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    open: threading.Event = field(default_factory=threading.Event)

    def take(self, path: str, headers: dict[str, str], body: bytes) -> None:
        self.paths.append(path)
        self.headers.append(headers)
        if self.status != 200:
            return
        for resource_spans in ExportTraceServiceRequest.FromString(body).resource_spans:
            resource = plain(resource_spans.resource.attributes)
            for scope_spans in resource_spans.scope_spans:
                self.spans += [as_span(span, resource) for span in scope_spans.spans]

    def requests(self) -> list[Span]:
        """The spans of outputs, in the order of their arrival."""
        return [span for span in self.spans if "gen_ai.operation.name" in span.attributes]

    def children(self, span: Span) -> dict[str, Span]:
        """By name."""
        return {each.name: each for each in self.spans if each.parent_id == span.span_id}


def as_span(span: Any, resource: dict[str, Any]) -> Span:
    return Span(
        name=span.name,
        kind=span.kind,
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex(),
        begin=span.start_time_unix_nano,
        end=span.end_time_unix_nano,
        status=span.status.code,
        attributes=plain(span.attributes),
        resource=resource,
    )


def plain(attributes: Any) -> dict[str, Any]:
    return {each.key: value_of(each.value) for each in attributes}


def value_of(value: Any) -> Any:
    which = value.WhichOneof("value")
    if which == "array_value":
        return [value_of(each) for each in value.array_value.values]
    return getattr(value, which)


@pytest.fixture
def collector() -> Iterator[Collector]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            made.take(self.path, {k.lower(): v for k, v in self.headers.items()}, body)
            made.open.wait(30)
            answer = ExportTraceServiceResponse()
            answer.partial_success.rejected_spans = made.num_rejected
            content = answer.SerializeToString()
            self.send_response(made.status)
            if made.status in (301, 302, 307, 308):
                self.send_header("Location", "/elsewhere")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            made.num_answered += 1
            self.wfile.write(content)

        def log_message(self, format: str, *arguments: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made = Collector(url=f"http://127.0.0.1:{server.server_port}")
    made.open.set()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield made
    made.open.set()
    server.shutdown()
    thread.join()
    server.server_close()
