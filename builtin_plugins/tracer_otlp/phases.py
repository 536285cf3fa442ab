"""When the phases of a request were, from its durations."""

from __future__ import annotations

from typing import Final, NamedTuple

from hookspecs.contracts.stats import FinishedRequest

__all__ = ["Phase", "phases_of", "started_at_ns"]

MAX_S: Final = 1e9
"""No request takes 30 years."""


class Phase(NamedTuple):
    """A part of a request. Nanoseconds since 1970, UTC."""

    name: str
    begin_ns: int
    end_ns: int


def started_at_ns(request: FinishedRequest) -> int:
    """Nanoseconds since 1970, UTC, when the request arrived."""
    return request.ended_at_ns - _ns(request.stats.e2e_latency)


def phases_of(request: FinishedRequest) -> list[Phase]:
    """queue, prefill and decode, as far as they happened; none of them leaves the request.

    Durations are known, and one moment: that of the first token. Prefill ends there, decode
    begins there, and queue ends where prefill begins.
    """
    stats, begin, end = request.stats, started_at_ns(request), request.ended_at_ns
    if not stats.prefilled:
        return []
    if not stats.num_generation_tokens:
        started = min(begin + _ns(stats.queue_time), end)
        return [
            Phase("queue", begin, started),
            Phase("prefill", started, min(started + _ns(stats.prefill_time), end)),
        ]
    first_token = min(begin + _ns(stats.time_to_first_token), end)
    started = max(first_token - _ns(stats.prefill_time), begin)
    queued = max(started - _ns(stats.queue_time), begin)
    phases = [Phase("queue", queued, started), Phase("prefill", started, first_token)]
    if stats.num_generation_tokens > 1:
        last_token = min(first_token + _ns(stats.decode_time), end)
        phases.append(Phase("decode", first_token, last_token))
    return phases


def _ns(seconds: float) -> int:
    """Nanoseconds; what can be no duration is none."""
    return int(seconds * 1e9) if 0.0 <= seconds <= MAX_S else 0
