"""Health, for load balancers and supervisors; answered without a key, and never waits."""

from __future__ import annotations

import msgspec
from starlette.responses import Response

from builtin_plugins.openai_server.answers import json_answer
from builtin_plugins.openai_server.endpoint import Call, Endpoint

__all__ = ["ENDPOINTS"]


class HealthAnswer(msgspec.Struct, kw_only=True):
    """Answer of the health routes."""

    ok: bool
    reason: str
    """Why not; empty when it is."""


def _answer(ok: bool, reason: str) -> Response:
    shown = "" if ok else reason or "no reason is known"
    return json_answer(HealthAnswer(ok=ok, reason=shown), 200 if ok else 503)


async def ready(call: Call[None]) -> Response:
    """Whether new requests are taken and make progress: 200 or 503."""
    health = call.service.engine.health()
    return _answer(health.ready, health.reason)


async def live(call: Call[None]) -> Response:
    """Whether the process does its work, 200, or must be restarted, 503."""
    health = call.service.engine.health()
    return _answer(health.live, health.reason)


def _endpoint(path: str, live_only: bool, summary: str) -> Endpoint:
    return Endpoint(
        "GET",
        path,
        live if live_only else ready,
        summary,
        answer=HealthAnswer,
        answers={503: HealthAnswer},
        public=True,
    )


ENDPOINTS = (
    _endpoint("/health", False, "Readiness: are new requests taken?"),
    _endpoint("/health/ready", False, "Readiness: are new requests taken?"),
    _endpoint("/health/live", True, "Liveness: must the process be restarted?"),
    _endpoint("/ping", False, "Readiness: are new requests taken?"),
)
