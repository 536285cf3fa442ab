"""From statistics to rows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

from hookspecs.types.stats import FinishedRequestStats, IterationStats, SchedulerStats

__all__ = ["EngineTotals", "Row", "finished_row", "rejection_row", "storable"]

Value = str | int | float | None
_MAX_INTEGER = 2**63 - 1


class Row(NamedTuple):
    """One row of a table, in the order of its columns."""

    table: str
    values: Sequence[Value]

    @property
    def statement(self) -> str:
        """The SQL that inserts it."""
        return f"INSERT INTO {self.table} VALUES ({', '.join('?' * len(self.values))})"


def storable(text: str) -> str:
    """What callers chose may be no valid Unicode, which SQLite does not take."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def finished_row(
    process_id: int, engine_index: int, ended_at: float, stats: FinishedRequestStats
) -> Row:
    """Of one output that ended. `ended_at`: seconds since 1970, UTC."""
    most = stats.max_tokens
    return Row(
        "finished_requests",
        (
            process_id,
            engine_index,
            ended_at,
            storable(stats.request_id),
            str(stats.finish_reason),
            storable(stats.tenant),
            json.dumps(stats.labels),
            stats.n,
            int(stats.pooling),
            None if most is None else min(most, _MAX_INTEGER),
            stats.num_prompt_tokens,
            stats.num_cached_tokens,
            stats.num_generation_tokens,
            stats.num_preemptions,
            stats.e2e_latency,
            stats.queue_time,
            stats.prefill_time,
            stats.decode_time,
            stats.time_to_first_token,
        ),
    )


def rejection_row(process_id: int, began_at: float, ended_at: float, reason: str, n: int) -> Row:
    """Requests that were refused in one interval for one reason."""
    return Row("rejections", (process_id, began_at, ended_at, storable(reason), n))


class EngineTotals:
    """What one engine did in one interval, as far as this front-end process was told."""

    def __init__(self) -> None:
        self._scheduler: SchedulerStats | None = None
        self._finished = self._prompt = self._cached = self._generation = self._preempted = 0
        self._first: list[float] = []
        self._between: list[float] = []

    def add(self, scheduler: SchedulerStats | None, iteration: IterationStats | None) -> None:
        """One batch of statistics."""
        if scheduler is not None:
            self._scheduler = scheduler
            self._preempted += scheduler.num_preempted
        if iteration is not None:
            self._finished += len(iteration.finished)
            self._prompt += iteration.num_prompt_tokens
            self._cached += iteration.num_cached_tokens
            self._generation += iteration.num_generation_tokens
            self._first.extend(iteration.time_to_first_token)
            self._between.extend(iteration.inter_token_latency)

    def row(self, process_id: int, engine_index: int, began_at: float, ended_at: float) -> Row:
        """State at its end is NULL if this process was not told of any: an engine tells one of
        its front ends."""
        last = self._scheduler
        return Row(
            "intervals",
            (
                process_id,
                engine_index,
                began_at,
                ended_at,
                self._finished,
                self._prompt,
                self._cached,
                self._generation,
                _mean(self._first),
                _mean(self._between),
                self._preempted,
                None if last is None else last.num_running,
                None if last is None else last.num_waiting,
                None if last is None else last.kv_cache_usage,
            ),
        )


def _mean(seconds: list[float]) -> float | None:
    return sum(seconds) / len(seconds) if seconds else None
