"""The stat logger. Front-end process."""

from __future__ import annotations

import logging

from hookspecs.contracts.stats import StatLogger, StatLoggerContext
from hookspecs.types.stats import FinishedRequestStats, IterationStats, SchedulerStats

from slow_request_logger.options import SlowRequestOptions

__all__ = ["SlowRequestLogger"]

logger = logging.getLogger("slow_request_logger")


class SlowRequestLogger(StatLogger):
    """One warning for each finished request that exceeded a limit, whatever ended it."""

    def __init__(self, context: StatLoggerContext) -> None:
        super().__init__(context)
        self._limits: SlowRequestOptions = context.options

    def record(
        self,
        scheduler: SchedulerStats | None,
        iteration: IterationStats | None,
        engine_index: int = 0,
    ) -> None:
        """Look at the requests that this batch finished."""
        if iteration is None:
            return
        for stats in iteration.finished:
            exceeded = self._exceeded(stats)
            if exceeded:
                _warn(stats, exceeded, engine_index)

    def _exceeded(self, stats: FinishedRequestStats) -> list[str]:
        found: list[str] = []
        for what, seconds, limit in (
            ("end-to-end latency", stats.e2e_latency, self._limits.e2e_latency_s),
            ("time to first token", stats.time_to_first_token, self._limits.time_to_first_token_s),
        ):
            if seconds > limit:
                found.append(f"{what} {seconds:.3f} s > {limit:g} s")
        return found


def _warn(stats: FinishedRequestStats, exceeded: list[str], engine_index: int) -> None:
    # What users chose (id, tenant, labels) is quoted: a line break in it can not forge a line.
    logger.warning(
        "slow request %r: %s; tenant %r, labels %r, engine %d, finish reason %s, "
        "%d prompt tokens (%d cached), %d generated, queued %.3f s, preempted %d times",
        stats.request_id,
        ", ".join(exceeded),
        stats.tenant,
        stats.labels,
        engine_index,
        stats.finish_reason,
        stats.num_prompt_tokens,
        stats.num_cached_tokens,
        stats.num_generation_tokens,
        stats.queue_time,
        stats.num_preemptions,
    )
