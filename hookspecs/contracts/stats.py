"""Stat loggers, tracers and KV event publishers. Front-end process, except where noted."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import msgspec

from hookspecs.contracts.base import Context
from hookspecs.types.stats import FinishedRequestStats, IterationStats, SchedulerStats

__all__ = [
    "BlockRemoved",
    "BlockStored",
    "CacheCleared",
    "KVEvent",
    "KVEventPublisher",
    "KVEventPublisherContext",
    "StatLogger",
    "StatLoggerContext",
    "Tracer",
    "TracerContext",
]


class StatLoggerContext(Context, frozen=True, kw_only=True):
    """Context of a stat logger."""

    engine_indexes: tuple[int, ...] = (0,)
    model: str = ""


class StatLogger(ABC):
    """Gets every batch of statistics. One that raises is detached and counted; it must return
    promptly, since outputs wait for it."""

    def __init__(self, context: StatLoggerContext) -> None:
        self.context = context

    @abstractmethod
    def record(
        self,
        scheduler: SchedulerStats | None,
        iteration: IterationStats | None,
        engine_index: int = 0,
    ) -> None:
        """What one batch of outputs brought."""

    def report(self) -> None:
        """`stats.interval_s` has passed: write down what was gathered."""
        return

    def close(self) -> None:
        """The last call, after a last `report`, or after the logger raised; flush."""
        return


class TracerContext(Context, frozen=True, kw_only=True):
    """Context of a tracer."""


class Tracer(ABC):
    """Turns finished requests into spans."""

    def __init__(self, context: TracerContext) -> None:
        self.context = context

    @abstractmethod
    def on_request_finished(
        self, stats: FinishedRequestStats, trace_headers: dict[str, str]
    ) -> None:
        """One span; `trace_headers` carry the W3C trace context of the caller."""

    def close(self) -> None:
        """The last call; flush."""
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
