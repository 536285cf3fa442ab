"""Statistics to the metrics of one engine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from operator import add
from typing import Final

from builtin_plugins.stats_prometheus.catalogue import CATALOGUE, PREFIX, Origin
from builtin_plugins.stats_prometheus.store import Store
from hookspecs.types.control import EngineState
from hookspecs.types.request import FinishReason
from hookspecs.types.stats import (
    FinishedRequestStats,
    IterationStats,
    RejectionReason,
    SchedulerStats,
)

__all__ = ["Recorder", "show_rejections"]

SLEEP_STATES: Final = ("awake", "weights_offloaded", "discard_all")
"""By level."""
KNOWN: Final[dict[str, tuple[str, ...]]] = {
    "state": tuple(map(str, EngineState)),
    "sleep_state": SLEEP_STATES,
    "finish_reason": tuple(map(str, FinishReason)),
    "source": ("local_compute", "local_cache_hit"),
}
"""Labels whose values are known beforehand."""


MAX_PENDING: Final = 64
"""Batches of outputs that are kept, to be counted together: counting one costs nearly as much as
counting all of them, and they come up to thousands of times a second."""


def show_rejections(store: Store, model: str) -> None:
    """Expose the refusals of requests, which belong to no engine, before the first one."""
    for reason in RejectionReason:
        store.show("admission_rejections_total", (model, str(reason)))


class Recorder:
    """All series whose labels are known are there from the start, so that a rate over the first
    event is not lost."""

    def __init__(self, store: Store, model: str, engine_index: int) -> None:
        self._store = store
        self._engine = engine = (model, str(engine_index))
        self._schedulers: list[SchedulerStats] = []
        self._iterations: list[IterationStats] = []
        self._state: tuple[str, int | None] | None = None
        """That of the last statistics."""
        for spec in CATALOGUE:
            if spec.origin is not Origin.RECORDED or "engine" not in spec.labels:
                continue
            name = spec.name.removeprefix(PREFIX)
            if len(spec.labels) == len(engine):
                store.show(name, engine)
            else:
                for value in KNOWN[spec.labels[-1]]:
                    store.show(name, (*engine, value))

    def record(self, scheduler: SchedulerStats | None, iteration: IterationStats | None) -> None:
        """Take what one batch of outputs brought. The metrics have it after `settle`, or at once
        where another process may be asked for them."""
        if scheduler is not None:
            self._schedulers.append(scheduler)
        if iteration is not None:
            self._iterations.append(iteration)
        if self._store.shared or len(self._iterations) + len(self._schedulers) >= MAX_PENDING:
            self.settle()

    def settle(self) -> None:
        """Count what was taken."""
        schedulers, self._schedulers = self._schedulers, []
        iterations, self._iterations = self._iterations, []
        if schedulers:
            self._count_scheduler(schedulers)
        if iterations:
            self._count_iterations(iterations)
            self._count_finished([one for each in iterations for one in each.finished])

    def _count_scheduler(self, stats: Sequence[SchedulerStats]) -> None:
        """The state of the engine is the last; what it counted since it last told adds up."""
        store, engine, now = self._store, self._engine, stats[-1]
        store.set("num_requests_running", engine, now.num_running)
        store.set("num_requests_waiting", engine, now.num_waiting)
        store.set("kv_cache_usage_perc", engine, now.kv_cache_usage)
        store.set("kv_cache_blocks", engine, now.kv_blocks_total)
        self._set_state(now)
        store.add("num_preemptions_total", engine, *(each.num_preempted for each in stats))
        caches = [each.prefix_cache for each in stats]
        store.add("prefix_cache_queries_total", engine, *(each.queries for each in caches))
        store.add("prefix_cache_hits_total", engine, *(each.hits for each in caches))

    def _set_state(self, stats: SchedulerStats) -> None:
        now = (stats.state, stats.sleep_level)
        if now == self._state and not self._store.shared:
            return
        self._state = now
        deepest = len(SLEEP_STATES) - 1
        sleep_state = SLEEP_STATES[min(max(stats.sleep_level or 0, 0), deepest)]
        for state in KNOWN["state"]:
            self._store.set("engine_state", (*self._engine, state), state == stats.state)
        for state in SLEEP_STATES:
            self._store.set("engine_sleep_state", (*self._engine, state), state == sleep_state)

    def _count_iterations(self, stats: Sequence[IterationStats]) -> None:
        """What batches of outputs held."""
        store, engine = self._store, self._engine
        prompts = [each for each in stats if each.num_prompt_tokens]
        if prompts:
            by_source = "prompt_tokens_by_source_total"
            cached = [each.num_cached_tokens for each in prompts]
            computed = [each.num_prompt_tokens - each.num_cached_tokens for each in prompts]
            store.add("prompt_tokens_total", engine, *(each.num_prompt_tokens for each in prompts))
            store.add("prompt_tokens_cached_total", engine, *cached)
            store.add(by_source, (*engine, "local_compute"), *computed)
            store.add(by_source, (*engine, "local_cache_hit"), *cached)
        generated = [each.num_generation_tokens for each in stats if each.num_generation_tokens]
        store.add("generation_tokens_total", engine, *generated)
        tokens = [
            each.num_prompt_tokens - each.num_cached_tokens + each.num_generation_tokens
            for each in stats
            if each.num_prompt_tokens or each.num_generation_tokens
        ]
        store.observe("iteration_tokens_total", engine, tokens)
        first = [latency for each in stats for latency in each.time_to_first_token]
        store.observe("time_to_first_token_seconds", engine, first)
        later = [latency for each in stats for latency in each.inter_token_latency]
        store.observe("inter_token_latency_seconds", engine, later)

    def _count_finished(self, stats: Sequence[FinishedRequestStats]) -> None:
        store, engine = self._store, self._engine
        for reason, count in Counter(str(each.finish_reason) for each in stats).items():
            store.add("requests_total", (*engine, reason), count)
        store.observe("e2e_request_latency_seconds", engine, [each.e2e_latency for each in stats])
        store.observe("request_num_preemptions", engine, [each.num_preemptions for each in stats])
        store.observe("request_params_n", engine, [each.n for each in stats if not each.pooling])
        max_tokens = [each.max_tokens for each in stats if each.max_tokens is not None]
        store.observe("request_params_max_tokens", engine, max_tokens)
        self._count_prefilled([each for each in stats if each.prefilled])

    def _count_prefilled(self, stats: Sequence[FinishedRequestStats]) -> None:
        store, engine = self._store, self._engine
        prompts = [each.num_prompt_tokens for each in stats]
        computed = [each.num_prompt_tokens - each.num_cached_tokens for each in stats]
        store.observe("request_queue_time_seconds", engine, [each.queue_time for each in stats])
        store.observe("request_prompt_tokens", engine, prompts)
        store.observe("request_prefill_kv_computed_tokens", engine, computed)
        self._count_generated([each for each in stats if not each.pooling])

    def _count_generated(self, stats: Sequence[FinishedRequestStats]) -> None:
        """What only an output has that samples tokens."""
        store, engine = self._store, self._engine
        prefill = [each.prefill_time for each in stats]
        decode = [each.decode_time for each in stats]
        store.observe("request_prefill_time_seconds", engine, prefill)
        store.observe("request_decode_time_seconds", engine, decode)
        inference = list(map(add, prefill, decode))
        store.observe("request_inference_time_seconds", engine, inference)
        generated = [each.num_generation_tokens for each in stats]
        store.observe("request_generation_tokens", engine, generated)
        mean = [each.mean_time_per_output_token for each in stats if each.num_generation_tokens > 1]
        store.observe("request_time_per_output_token_seconds", engine, mean)
