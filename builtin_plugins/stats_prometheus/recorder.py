"""Statistics to the metrics of one engine."""

from __future__ import annotations

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

    def scheduler(self, stats: SchedulerStats) -> None:
        """The state of the engine, and what it counted since it last told."""
        store, engine, cache = self._store, self._engine, stats.prefix_cache
        store.set("num_requests_running", engine, stats.num_running)
        store.set("num_requests_waiting", engine, stats.num_waiting)
        store.set("kv_cache_usage_perc", engine, stats.kv_cache_usage)
        store.set("kv_cache_blocks", engine, stats.kv_blocks_total)
        self._set_state(stats)
        store.add("num_preemptions_total", engine, stats.num_preempted)
        store.add("prefix_cache_queries_total", engine, cache.queries)
        store.add("prefix_cache_hits_total", engine, cache.hits)

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

    def iteration(self, stats: IterationStats) -> None:
        """What one batch of outputs held."""
        store, engine = self._store, self._engine
        computed = stats.num_prompt_tokens - stats.num_cached_tokens
        if stats.num_prompt_tokens:
            by_source = "prompt_tokens_by_source_total"
            store.add("prompt_tokens_total", engine, stats.num_prompt_tokens)
            store.add("prompt_tokens_cached_total", engine, stats.num_cached_tokens)
            store.add(by_source, (*engine, "local_compute"), computed)
            store.add(by_source, (*engine, "local_cache_hit"), stats.num_cached_tokens)
        if stats.num_generation_tokens:
            store.add("generation_tokens_total", engine, stats.num_generation_tokens)
        if stats.num_prompt_tokens or stats.num_generation_tokens:
            tokens = computed + stats.num_generation_tokens
            store.observe("iteration_tokens_total", engine, tokens)
        store.observe("time_to_first_token_seconds", engine, *stats.time_to_first_token)
        store.observe("inter_token_latency_seconds", engine, *stats.inter_token_latency)
        for finished in stats.finished:
            self._finished(finished)

    def _finished(self, stats: FinishedRequestStats) -> None:
        store, engine = self._store, self._engine
        store.add("requests_total", (*engine, str(stats.finish_reason)), 1)
        store.observe("e2e_request_latency_seconds", engine, stats.e2e_latency)
        store.observe("request_num_preemptions", engine, stats.num_preemptions)
        if not stats.pooling:
            store.observe("request_params_n", engine, stats.n)
        if stats.max_tokens is not None:
            store.observe("request_params_max_tokens", engine, stats.max_tokens)
        if not stats.prefilled:
            return
        computed = stats.num_prompt_tokens - stats.num_cached_tokens
        store.observe("request_queue_time_seconds", engine, stats.queue_time)
        store.observe("request_prompt_tokens", engine, stats.num_prompt_tokens)
        store.observe("request_prefill_kv_computed_tokens", engine, computed)
        if not stats.pooling:
            self._generated(stats)

    def _generated(self, stats: FinishedRequestStats) -> None:
        """What only an output has that samples tokens."""
        store, engine = self._store, self._engine
        inference = stats.prefill_time + stats.decode_time
        store.observe("request_prefill_time_seconds", engine, stats.prefill_time)
        store.observe("request_decode_time_seconds", engine, stats.decode_time)
        store.observe("request_inference_time_seconds", engine, inference)
        store.observe("request_generation_tokens", engine, stats.num_generation_tokens)
        if stats.num_generation_tokens > 1:
            mean = stats.mean_time_per_output_token
            store.observe("request_time_per_output_token_seconds", engine, mean)
