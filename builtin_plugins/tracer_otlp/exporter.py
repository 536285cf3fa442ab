"""Spans to a collector: OTLP over HTTP, binary protobuf (OpenTelemetry Protocol 1.x).

The protocol's client of the SDK takes headers and certificates from the environment as well, and
logs every failure; this one does neither.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from http.client import HTTPException
from typing import Any, Final, NamedTuple
from urllib.error import HTTPError, URLError
from urllib.request import HTTPRedirectHandler, ProxyHandler, Request, build_opener

from google.protobuf.message import DecodeError
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

__all__ = ["CollectorExporter"]

logger = logging.getLogger(__name__)

RETRIED: Final = frozenset(
    {
        HTTPStatus.TOO_MANY_REQUESTS,
        HTTPStatus.BAD_GATEWAY,
        HTTPStatus.SERVICE_UNAVAILABLE,
        HTTPStatus.GATEWAY_TIMEOUT,
    }
)
"""OTLP specification, "Retryable Response Codes"."""
MAX_ANSWER_BYTES: Final = 1 << 16


class Answer(NamedTuple):
    """How one try ended."""

    cause: str = ""
    """Why it failed; empty if it did not."""
    temporary: bool = False
    """Whether another try makes sense."""
    num_rejected: int = 0
    """Spans that a collector left out of those it took."""


class CollectorExporter(SpanExporter):
    """Sends what it is given within a time limit. A failure is said once, until spans are taken
    again, and counted; nothing is raised. The threads of a span processor."""

    def __init__(self, url: str, headers: Mapping[str, str], timeout_s: float) -> None:
        """`url`: with its path. `timeout_s`: of one export with all its tries."""
        self._url = url
        self._headers = {**headers, "Content-Type": "application/x-protobuf"}
        self._timeout_s = timeout_s
        self._opener = build_opener(ProxyHandler({}), _NoRedirects())
        self._stopping = threading.Event()
        self._failing = False
        self.num_lost = 0
        """Spans that no collector took."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Try until they are taken, the time is up, or it makes no sense."""
        return self._export(spans, time.monotonic() + self._timeout_s)

    def try_once(self, spans: Sequence[ReadableSpan], timeout_s: float) -> SpanExportResult:
        """`export` with a single try."""
        body = encode_spans(spans).SerializeToString()
        return self._settle(self._post(body, timeout_s), len(spans))

    def hurry(self) -> None:
        """From now on nothing is tried a second time."""
        self._stopping.set()

    def shutdown(self) -> None:
        self.hurry()

    def _export(self, spans: Sequence[ReadableSpan], deadline: float) -> SpanExportResult:
        body, wait = encode_spans(spans).SerializeToString(), 1.0
        while True:
            answer = self._post(body, max(deadline - time.monotonic(), 0.1))
            last = not answer.temporary or time.monotonic() + wait >= deadline
            if last or self._stopping.wait(wait):
                return self._settle(answer, len(spans))
            wait *= 2

    def _post(self, body: bytes, timeout_s: float) -> Answer:
        request = Request(self._url, data=body, headers=self._headers, method="POST")
        try:
            with self._opener.open(request, timeout=timeout_s) as response:
                return _taken(response.read(MAX_ANSWER_BYTES))
        except HTTPError as error:
            error.close()
            return Answer(f"it answers {error.code} {error.reason}", error.code in RETRIED)
        except URLError as error:
            return Answer(str(error.reason), temporary=True)
        except (OSError, HTTPException) as error:
            return Answer(f"{type(error).__name__}: {error}", temporary=True)

    def _settle(self, answer: Answer, num_spans: int) -> SpanExportResult:
        if not answer.cause:
            if self._failing:
                logger.info("the collector at %s takes spans again", self._url)
            self._failing = False
            self.num_lost += answer.num_rejected
            return SpanExportResult.SUCCESS
        if not self._failing:
            logger.warning(
                "the collector at %s does not take spans: %s. Requests are served all the same, "
                "but their spans are lost until it does; see plugins.options.otlp",
                self._url,
                answer.cause,
            )
        self._failing = True
        self.num_lost += num_spans
        return SpanExportResult.FAILURE


class _NoRedirects(HTTPRedirectHandler):
    """A redirected POST would become a GET, and look like a success."""

    def redirect_request(self, *arguments: Any, **named: Any) -> None:
        return None


def _taken(body: bytes) -> Answer:
    """An answer of success, which may say that some spans were left out."""
    try:
        answer = ExportTraceServiceResponse.FromString(body)
    except DecodeError:
        return Answer()  # it took them, and says so in another encoding
    return Answer(num_rejected=answer.partial_success.rejected_spans)
