"""What a line holds."""

from __future__ import annotations

import msgspec
from hookspecs.contracts.stats import FinishedRequest

from trace_json_lines.trace_context import parse_traceparent

__all__ = ["TraceRecord", "record_of"]


class TraceRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One output of a request that ended. Durations are seconds; one that did not happen is 0."""

    request_id: str
    index: int
    """Of the output."""
    n: int
    """Outputs that the request asked for."""
    model: str
    trace_id: str | None
    """Of the caller's trace; None when it named none."""
    parent_id: str | None
    sampled: bool | None
    started_at: float
    """Arrival, seconds since 1970, UTC."""
    ended_at: float
    queue_s: float
    prefill_s: float
    decode_s: float
    time_to_first_token_s: float
    finish_reason: str
    num_prompt_tokens: int
    num_cached_tokens: int
    num_generation_tokens: int
    num_preemptions: int
    tenant: str
    labels: dict[str, str]


def record_of(request: FinishedRequest, model: str) -> TraceRecord:
    """All of it comes from the request and its statistics."""
    stats = request.stats
    parent = parse_traceparent(request.trace_headers.get("traceparent", ""))
    ended_at = request.ended_at_ns / 1e9
    return TraceRecord(
        request_id=request.request_id,
        index=request.index,
        n=stats.n,
        model=model,
        trace_id=None if parent is None else parent.trace_id,
        parent_id=None if parent is None else parent.parent_id,
        sampled=None if parent is None else parent.sampled,
        started_at=ended_at - stats.e2e_latency,
        ended_at=ended_at,
        queue_s=stats.queue_time,
        prefill_s=stats.prefill_time,
        decode_s=stats.decode_time,
        time_to_first_token_s=stats.time_to_first_token,
        finish_reason=str(stats.finish_reason),
        num_prompt_tokens=stats.num_prompt_tokens,
        num_cached_tokens=stats.num_cached_tokens,
        num_generation_tokens=stats.num_generation_tokens,
        num_preemptions=stats.num_preemptions,
        tenant=stats.tenant,
        labels=stats.labels,
    )
