"""Stat loggers, tracers and KV event publishers. Front-end process, except where noted."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import msgspec

from hookspecs.contracts.base import Context
from hookspecs.types.sampling import SamplingParams
from hookspecs.types.stats import (
    FinishedRequestStats,
    IterationStats,
    PluginCallStats,
    SchedulerStats,
)

__all__ = [
    "BlockRemoved",
    "BlockStored",
    "CacheCleared",
    "Exposition",
    "FinishedRequest",
    "KVEvent",
    "KVEventPublisher",
    "KVEventPublisherContext",
    "StatLogger",
    "StatLoggerContext",
    "Tracer",
    "TracerContext",
]


class Exposition(msgspec.Struct, frozen=True, kw_only=True):
    """Metrics in a text form that collectors read."""

    content_type: str
    body: bytes


class StatLoggerContext(Context, frozen=True, kw_only=True):
    """Context of a stat logger."""

    engine_indexes: tuple[int, ...] = (0,)
    model: str = ""
    max_model_len: int = 0
    """Tokens; 0 when it is not known yet."""
    shared_dir: str | None = None
    """A private directory that all front-end processes of one launch share, when there are
    several; it is removed with the launch."""
    process_index: int = 0
    """This front-end process."""
    plugin_calls: Callable[[], Sequence[PluginCallStats]] = tuple
    """Calls, errors and time of every plugin's hooks so far, in all processes that told."""


class StatLogger(ABC):
    """Gets every batch of statistics. One that raises is detached and counted; it must return
    promptly, since outputs wait for it. It only reads what it gets, which others get too, and what
    it keeps must not grow with the requests that ended and were reported.

    The constructor is the place to open files, look names up and connect: it may take time, and
    its errors stop the start. Raise PluginConfigError there for what the operator can mend.
    """

    def __init__(self, context: StatLoggerContext) -> None:
        self.context = context

    @abstractmethod
    def record(
        self,
        scheduler: SchedulerStats | None,
        iteration: IterationStats | None,
        engine_index: int = 0,
    ) -> None:
        """What one batch of outputs brought: about once for each step of an engine that has news
        for this front end, and once when requests end in the front end itself, as by an abort.

        `scheduler`: None where the batch has none, as always when requests end here. An engine
        tells it once a step, of several front-end processes to the first (by `process_index`) of
        those that get outputs of the step, to process 0 if none does but the numbers of requests
        or the state changed. So what counts up (`num_preempted`, `prefix_cache`) is added up over
        all front ends, and of what has a value the newest counts: compare `step`, or the time at
        which it came. In the others it is old. An idle engine tells nothing: its last value holds.

        `iteration`: None when the batch could not be read.
        """

    def record_rejection(self, reason: str) -> None:
        """A request was refused before it reached an engine. `reason`: a RejectionReason."""
        return

    def exposition(self) -> Exposition | None:
        """All metrics so far in a text form for collectors; None: it has none. Called from the
        event loop: it must return promptly."""
        return None

    def report(self) -> None:
        """`stats.interval_s` has passed: write down what was gathered."""
        return

    def close(self) -> None:
        """The last call, after a last `report`, or after the logger raised; flush, and give back
        files, threads and connections."""
        return


class TracerContext(Context, frozen=True, kw_only=True):
    """Context of a tracer."""

    model: str = ""
    process_index: int = 0
    """This front-end process."""


class FinishedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a tracer is told of a request that ended."""

    request_id: str
    """As the user gave it."""
    stats: FinishedRequestStats
    """Of one of its n outputs; its durations are seconds."""
    index: int
    """Of the output."""
    params: SamplingParams
    trace_headers: dict[str, str]
    """The W3C trace context (`traceparent`, `tracestate`) of the caller, names in lower case;
    as it was sent, so it may be no valid one."""
    ended_at_ns: int
    """Nanoseconds since 1970, UTC."""


class Tracer(ABC):
    """Turns finished requests into spans, whether statistics are on or not. It only reads what it
    gets, which others get too, and what it keeps must not grow with the requests that ended."""

    def __init__(self, context: TracerContext) -> None:
        self.context = context

    @abstractmethod
    def on_request_finished(self, request: FinishedRequest) -> None:
        """An output of a request ended, whatever the cause; exactly once each. It must return
        promptly, since outputs wait for it; one that raises is detached and counted."""

    def close(self) -> None:
        """The last call; flush, and give back files, threads and connections."""
        return


class BlockStored(msgspec.Struct, frozen=True, tag=True):
    """Blocks became available in the prefix cache."""

    block_hashes: tuple[bytes, ...]
    parent: bytes | None
    num_tokens: int
    group: int = 0


class BlockRemoved(msgspec.Struct, frozen=True, tag=True):
    """Blocks were given up."""

    block_hashes: tuple[bytes, ...]
    group: int = 0


class CacheCleared(msgspec.Struct, frozen=True, tag=True):
    """All blocks were forgotten."""


KVEvent = BlockStored | BlockRemoved | CacheCleared


class KVEventPublisherContext(Context, frozen=True, kw_only=True):
    """Context of a KV event publisher."""

    engine_index: int


class KVEventPublisher(ABC):
    """Core process; publishing happens off the step loop."""

    def __init__(self, context: KVEventPublisherContext) -> None:
        self.context = context

    @abstractmethod
    def publish(self, events: Sequence[KVEvent]) -> None:
        """Events of one step, in order; must not block."""

    def close(self) -> None:
        """The last call; flush."""
        return
