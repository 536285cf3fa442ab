"""The JSON objects that `json_lines` writes; `kind` tells them apart."""

from __future__ import annotations

from typing import Any

import msgspec

from hookspecs.types.stats import FinishedRequestStats, IterationStats, SchedulerStats

__all__ = ["IntervalRecord", "IntervalTotals", "finished_record"]


def finished_record(stats: FinishedRequestStats, time: float, engine_index: int) -> dict[str, Any]:
    """All fields of FinishedRequestStats, with the name of the finish reason, and
    `kind` "finished", `time` (seconds since the epoch), `engine_index`."""
    return {
        "kind": "finished",
        "time": time,
        "engine_index": engine_index,
        **msgspec.structs.asdict(stats),
        "finish_reason": str(stats.finish_reason),
    }


class IntervalRecord(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="report"):
    """What happened in one report interval, all engines together."""

    time: float
    """End of the interval, seconds since the epoch."""
    interval_s: float
    num_prompt_tokens: int
    """Of requests that got their first token in the interval."""
    num_cached_tokens: int
    """Of these, found in the prefix cache."""
    num_generation_tokens: int
    num_finished: int
    mean_time_to_first_token: float | None
    """Seconds; None when no request got its first token."""
    mean_inter_token_latency: float | None
    """Seconds; None when no request got a further token."""
    num_preempted: int
    prefix_cache_queries: int
    """Tokens looked up; requests resumed after preemption apart."""
    prefix_cache_hits: int
    num_running: int
    """At the end of the interval, as are the next two."""
    num_waiting: int
    kv_cache_usage: float
    """Share of blocks in use, 0 to 1."""


class IntervalTotals:
    """Adds up statistics until they are taken as a record."""

    def __init__(self) -> None:
        self._latest: dict[int, SchedulerStats] = {}
        self._clear()

    def add_scheduler(self, stats: SchedulerStats, engine_index: int) -> None:
        """The state of one engine, and what it counted since it was last asked."""
        self._latest[engine_index] = stats
        self._preempted += stats.num_preempted
        self._queries += stats.prefix_cache.queries
        self._hits += stats.prefix_cache.hits

    def add_iteration(self, stats: IterationStats) -> None:
        """What one batch of outputs held."""
        self._prompt += stats.num_prompt_tokens
        self._cached += stats.num_cached_tokens
        self._generation += stats.num_generation_tokens
        self._finished += len(stats.finished)
        self._first_token_s += sum(stats.time_to_first_token)
        self._num_first += len(stats.time_to_first_token)
        self._inter_token_s += sum(stats.inter_token_latency)
        self._num_inter += len(stats.inter_token_latency)

    def take(self, time: float, interval_s: float) -> IntervalRecord:
        """The record of the interval that ends now; the next one begins at zero."""
        states = self._latest.values()
        total = sum(state.kv_blocks_total for state in states)
        used = total - sum(state.kv_blocks_free for state in states)
        record = IntervalRecord(
            time=time,
            interval_s=interval_s,
            num_prompt_tokens=self._prompt,
            num_cached_tokens=self._cached,
            num_generation_tokens=self._generation,
            num_finished=self._finished,
            mean_time_to_first_token=_mean(self._first_token_s, self._num_first),
            mean_inter_token_latency=_mean(self._inter_token_s, self._num_inter),
            num_preempted=self._preempted,
            prefix_cache_queries=self._queries,
            prefix_cache_hits=self._hits,
            num_running=sum(state.num_running for state in states),
            num_waiting=sum(state.num_waiting for state in states),
            kv_cache_usage=used / total if total else 0.0,
        )
        self._clear()
        return record

    def _clear(self) -> None:
        self._prompt = self._cached = self._generation = self._finished = 0
        self._preempted = self._queries = self._hits = 0
        self._first_token_s = self._inter_token_s = 0.0
        self._num_first = self._num_inter = 0


def _mean(total: float, count: int) -> float | None:
    return total / count if count else None
