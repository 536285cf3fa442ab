"""Statistics: of the scheduler, of an iteration, of a finished request.

Times are seconds. Intervals are differences of one clock: queued/scheduled/token times are
the engine core's monotonic clock, arrival and delivery the front end's.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from hookspecs.types.request import FinishReason

__all__ = [
    "FinishedRequestStats",
    "IterationStats",
    "PluginCallStats",
    "PrefixCacheStats",
    "RejectionReason",
    "RequestMetrics",
    "SchedulerStats",
]


class PrefixCacheStats(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Prefix cache lookups since the SchedulerStats that the engine gave before; requests resumed
    after preemption apart."""

    requests: int = 0
    queries: int = 0
    """Tokens asked for."""
    hits: int = 0
    """Tokens found."""
    preempted_requests: int = 0
    preempted_queries: int = 0
    preempted_hits: int = 0
    evictions: int = 0
    """Cached blocks that were given to other content."""
    resets: int = 0


class SchedulerStats(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The state of an engine core after a step."""

    num_running: int = 0
    num_waiting: int = 0
    num_preempted: int = 0
    """Preemptions since the SchedulerStats that this engine gave before, to whichever front end:
    their sum over all front ends is the number of preemptions."""
    kv_blocks_total: int = 0
    kv_blocks_free: int = 0
    prefix_cache: PrefixCacheStats = msgspec.field(default_factory=PrefixCacheStats)
    step: int = 0
    state: str = "running"
    """EngineState."""
    sleep_level: int | None = None
    """None while awake."""

    @property
    def kv_cache_usage(self) -> float:
        """Share of blocks in use, 0 to 1."""
        if not self.kv_blocks_total:
            return 0.0
        return 1.0 - self.kv_blocks_free / self.kv_blocks_total


class RequestMetrics(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Times of one request; durations that have not happened yet are None."""

    arrival_time: float
    queue_time: float | None = None
    """From queued to first scheduled."""
    time_to_first_token: float | None = None
    """From arrival to the delivery of the first token."""
    last_token_latency: float | None = None
    """From first to last token."""


class FinishedRequestStats(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The one terminal record of a request, whatever ended it."""

    request_id: str
    finish_reason: FinishReason
    num_prompt_tokens: int
    num_generation_tokens: int
    num_cached_tokens: int = 0
    num_preemptions: int = 0
    max_tokens: int | None = None
    """None also for a pooling request, which generates nothing."""
    e2e_latency: float = 0.0
    queue_time: float = 0.0
    prefill_time: float = 0.0
    """From first scheduled to first token."""
    decode_time: float = 0.0
    """From first to last token."""
    time_to_first_token: float = 0.0
    n: int = 1
    """Outputs that the request asked for; each has a record of its own."""
    prefilled: bool = False
    """Its prompt was computed to the end: it is in the `num_prompt_tokens` of an
    IterationStats."""
    pooling: bool = False
    """It asked for a vector: there are no tokens, and no times of any."""
    tenant: str = ""
    labels: dict[str, str] = msgspec.field(default_factory=dict)

    @property
    def mean_time_per_output_token(self) -> float:
        """Decode time over tokens after the first; 0 for a single token."""
        return self.decode_time / max(1, self.num_generation_tokens - 1)


class RejectionReason(StrEnum):
    """Why a request was refused before it reached an engine."""

    DRAINING = "draining"
    """The front end or the engine drains."""
    QUEUE_FULL = "queue_full"
    SLEEPING = "sleeping"
    WAKING = "waking"


class IterationStats(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What one batch of outputs held, as seen by a front end."""

    timestamp: float
    """Monotonic clock of the front end."""
    num_prompt_tokens: int = 0
    """Of requests whose first token is in this batch."""
    num_cached_tokens: int = 0
    """Of these, found in the prefix cache; the others were computed."""
    num_generation_tokens: int = 0
    time_to_first_token: list[float] = msgspec.field(default_factory=list)
    inter_token_latency: list[float] = msgspec.field(default_factory=list)
    finished: list[FinishedRequestStats] = msgspec.field(default_factory=list)


class PluginCallStats(msgspec.Struct, frozen=True, kw_only=True):
    """What a plugin did in one hook, since the start of its process."""

    plugin: str
    hook: str
    process: str
    """`frontend`, or `frontend-N` if there are several; `engine-core-N`."""
    calls: int
    errors: int
    seconds: float
