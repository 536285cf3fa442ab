"""`/metrics`: what the stat loggers have for collectors."""

from __future__ import annotations

from starlette.responses import PlainTextResponse, Response

from builtin_plugins.openai_server.endpoint import Call, Endpoint

__all__ = ["ENDPOINTS"]


async def metrics(call: Call[None]) -> Response:
    """GET /metrics. All expositions of the first one's content type; the others, which can not be
    in one document with it, are named in a comment (Prometheus text format)."""
    expositions = call.service.engine.expositions()
    if not expositions:
        return PlainTextResponse(
            "no stat logger has metrics for collectors; add one to stats.loggers, e.g. "
            "`prometheus`\n",
            404,
        )
    kind = expositions[0].content_type
    bodies = [e.body for e in expositions if e.content_type == kind]
    others = sorted({e.content_type for e in expositions} - {kind})
    notes = [f"# left out, of another content type: {other}\n".encode() for other in others]
    joined = b"".join([*notes, *(body.rstrip(b"\n") + b"\n" for body in bodies)])
    return Response(joined, headers={"content-type": kind})


ENDPOINTS = (
    Endpoint(
        "GET",
        "/metrics",
        metrics,
        "Metrics for collectors",
        content_types=("text/plain", "application/openmetrics-text"),
        answers={404: str},
    ),
)
