"""The stat logger `prometheus`. Front-end process."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from builtin_plugins.stats_prometheus.buckets import bounds
from builtin_plugins.stats_prometheus.options import PrometheusOptions
from builtin_plugins.stats_prometheus.sharing import share
from hookspecs.contracts.stats import Exposition, StatLogger, StatLoggerContext
from hookspecs.types.stats import IterationStats, SchedulerStats

if TYPE_CHECKING:
    from builtin_plugins.stats_prometheus.recorder import Recorder

__all__ = ["PrometheusStatLogger"]

if find_spec("prometheus_client") is None:
    raise ModuleNotFoundError("No module named 'prometheus_client'", name="prometheus_client")


class PrometheusStatLogger(StatLogger):
    """Keeps the metrics of `catalogue.py`, and nothing outside of itself: two engines in one
    process have metrics of their own.

    With `shared_dir`, values are kept in files of that directory, and what one process exposes is
    of all. Exposition format: Prometheus text format 0.0.4.
    """

    def __init__(self, context: StatLoggerContext) -> None:
        super().__init__(context)
        shared = context.shared_dir
        folder = None if shared is None else share(shared, context.plugin)
        # Only now: prometheus-client must not be imported before it is told of the folder.
        from builtin_plugins.stats_prometheus.recorder import show_rejections
        from builtin_plugins.stats_prometheus.store import Store

        options: PrometheusOptions = context.options
        self._vllm_names = options.vllm_names
        self._store = Store(
            bounds(options.buckets, context.max_model_len), model=context.model, shared_dir=folder
        )
        show_rejections(self._store, context.model)
        self._recorders: dict[int, Recorder] = {}
        for engine_index in context.engine_indexes:
            self._recorder(engine_index)

    def record(
        self,
        scheduler: SchedulerStats | None,
        iteration: IterationStats | None,
        engine_index: int = 0,
    ) -> None:
        self._recorder(engine_index).record(scheduler, iteration)

    def record_rejection(self, reason: str) -> None:
        self._store.add("admission_rejections_total", (self.context.model, reason), 1)

    def exposition(self) -> Exposition:
        from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

        from builtin_plugins.stats_prometheus.facts import facts
        from builtin_plugins.stats_prometheus.families import Families

        for recorder in self._recorders.values():
            recorder.settle()
        self._read_plugins()
        samples = self._store.samples()
        blocks = {
            sample.labels["engine"]: int(sample.value)
            for sample in samples["framework_kv_cache_blocks"]
        }
        families = Families(samples | facts(self.context, blocks), vllm_names=self._vllm_names)
        return Exposition(content_type=CONTENT_TYPE_PLAIN_0_0_4, body=generate_latest(families))

    def report(self) -> None:
        # Where several processes share their values, another one may be asked for all of them.
        self._read_plugins()

    def _read_plugins(self) -> None:
        for each in self.context.plugin_calls():
            labels = (each.plugin, each.hook, each.process)
            self._store.set("plugin_calls_total", labels, each.calls)
            self._store.set("plugin_errors_total", labels, each.errors)
            self._store.set("plugin_seconds_total", labels, each.seconds)

    def _recorder(self, engine_index: int) -> Recorder:
        from builtin_plugins.stats_prometheus.recorder import Recorder

        recorder = self._recorders.get(engine_index)
        if recorder is None:
            recorder = Recorder(self._store, self.context.model, engine_index)
            self._recorders[engine_index] = recorder
        return recorder
