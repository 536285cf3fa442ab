"""The stat logger `console`. Front-end process."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from builtin_plugins.stats_console.hit_rate import RecentHitRate
from hookspecs.contracts.stats import StatLogger, StatLoggerContext
from hookspecs.types.stats import IterationStats, SchedulerStats

__all__ = ["ConsoleStatLogger"]

logger = logging.getLogger("framework.stats")


@dataclass(slots=True)
class _Interval:
    """What was counted since the last line."""

    active: bool = False
    prompt_tokens: int = 0
    generation_tokens: int = 0
    preemptions: int = 0


class ConsoleStatLogger(StatLogger):
    """One line a report, level INFO, for all engines together.

    Prompt throughput counts computed tokens only: what the prefix cache had shows in the hit
    rate. Nothing is logged for an interval without tokens, preemptions, finished, running or
    waiting requests. The first interval begins with the first request that is seen, not with the
    process: loading a model takes longer than many runs.
    """

    def __init__(
        self, context: StatLoggerContext, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(context)
        self._clock = clock
        self._since: float | None = None
        """When the interval began; None before anything was done."""
        self._latest: dict[int, SchedulerStats] = {}
        self._hit_rate = RecentHitRate()
        self._interval = _Interval()

    def record(
        self,
        scheduler: SchedulerStats | None,
        iteration: IterationStats | None,
        engine_index: int = 0,
    ) -> None:
        interval = self._interval
        if scheduler is not None:
            self._latest[engine_index] = scheduler
            self._hit_rate.add(scheduler.prefix_cache)
            interval.preemptions += scheduler.num_preempted
            if scheduler.num_running or scheduler.num_waiting or scheduler.num_preempted:
                interval.active = True
        if iteration is not None:
            interval.prompt_tokens += iteration.num_prompt_tokens - iteration.num_cached_tokens
            interval.generation_tokens += iteration.num_generation_tokens
            if iteration.num_prompt_tokens or iteration.num_generation_tokens or iteration.finished:
                interval.active = True
        if self._since is None and interval.active:
            self._since = self._clock() - _seconds_behind(iteration)

    def report(self) -> None:
        if self._since is None:
            return
        now = self._clock()
        elapsed = now - self._since
        if elapsed <= 0.0:
            return  # no rate without time; what was gathered goes into the next line
        if self._interval.active:
            logger.info(self._line(elapsed))
        self._since = now
        self._interval = _Interval()

    def _line(self, elapsed: float) -> str:
        interval, states = self._interval, self._latest.values()
        total = sum(state.kv_blocks_total for state in states)
        used = total - sum(state.kv_blocks_free for state in states)
        hit_rate = self._hit_rate.value
        return ", ".join(
            (
                f"prompt {interval.prompt_tokens / elapsed:.1f} tokens/s",
                f"generation {interval.generation_tokens / elapsed:.1f} tokens/s",
                f"running {sum(state.num_running for state in states)}",
                f"waiting {sum(state.num_waiting for state in states)}",
                f"KV cache usage {used / total if total else 0.0:.1%}",
                f"prefix cache hit rate {'-' if hit_rate is None else f'{hit_rate:.1%}'}",
                f"preemptions {interval.preemptions}",
            )
        )


def _seconds_behind(iteration: IterationStats | None) -> float:
    """How long before it the oldest of its requests arrived, of those that began or ended in it."""
    if iteration is None:
        return 0.0
    ended = (request.e2e_latency for request in iteration.finished)
    return max((0.0, *iteration.time_to_first_token, *ended))
