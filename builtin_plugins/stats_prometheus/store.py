"""The values of the metrics, in prometheus-client objects that are made from the catalogue.

Importing this module imports prometheus-client, which then decides for the whole process whether
values are kept in memory or in files that processes share; `sharing.py` comes before.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from prometheus_client import Counter, Gauge
from prometheus_client.metrics_core import Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.samples import Sample

from builtin_plugins.stats_prometheus.buckets import BucketFamily
from builtin_plugins.stats_prometheus.catalogue import (
    CATALOGUE,
    PREFIX,
    MetricSpec,
    MetricType,
    Origin,
)
from builtin_plugins.stats_prometheus.histogram import BulkHistogram

__all__ = ["Store"]

Labels = tuple[str, ...]
AnyMetric = Counter | Gauge | BulkHistogram


class Store:
    """Takes any number: one that a metric can not take is counted in `invalid_values_total`, and
    left out. Metrics are named without their prefix; labels are given in the catalogue's order.

    It belongs to no registry, so several can be in one process.
    """

    def __init__(
        self,
        bounds: Mapping[BucketFamily, tuple[float, ...]],
        *,
        model: str,
        shared_dir: str | None = None,
    ) -> None:
        """`bounds`: of the buckets of every family. `shared_dir`: where the processes that share
        their values keep them."""
        self._model = model
        self._shared_dir = shared_dir
        self._specs = {each.name: each for each in CATALOGUE if each.origin is not Origin.FACT}
        self._metrics = {name: _make(each, bounds) for name, each in self._specs.items()}
        self._series: dict[tuple[str, Labels], Any] = {}

    @property
    def shared(self) -> bool:
        """Whether other processes set the same gauges."""
        return self._shared_dir is not None

    def show(self, name: str, labels: Labels) -> None:
        """Expose a series before it has its first value."""
        self._of(name, labels)

    def add(self, name: str, labels: Labels, *amounts: float) -> None:
        """Raise a counter by their sum."""
        total = sum(self._valid(name, amounts))
        if total:
            self._of(name, labels).inc(total)

    def set(self, name: str, labels: Labels, value: float) -> None:
        """Set a gauge, or a total that another part keeps."""
        if self._valid(name, (value,)):
            self._of(name, labels).set(value)

    def observe(self, name: str, labels: Labels, values: Sequence[float]) -> None:
        """Count values in a histogram."""
        valid = self._valid(name, values)
        if valid:
            self._of(name, labels).observe_all(valid)

    def _of(self, name: str, labels: Labels) -> Any:
        """The one series of these labels."""
        series = self._series.get((name, labels))
        if series is None:
            series = self._series[name, labels] = self._metrics[PREFIX + name].labels(*labels)
        return series

    def _valid(self, name: str, values: Sequence[float]) -> Sequence[float]:
        """Those that a metric can take; the others are counted. If one is NaN, so is the sum."""
        if not values or (min(values) >= 0.0 and sum(values) < math.inf):
            return values
        valid = [value for value in values if 0.0 <= value < math.inf]
        if len(valid) < len(values):
            invalid = (self._model, PREFIX + name)
            self.add("invalid_values_total", invalid, len(values) - len(valid))
        return valid

    def samples(self) -> dict[str, list[Sample]]:
        """Name of a metric to what there is, of all processes that share their values."""
        families: Iterable[Metric]
        if self._shared_dir is None:
            families = [each for metric in self._metrics.values() for each in metric.collect()]
        else:
            # prometheus-client has no annotations here.
            families = MultiProcessCollector(None, self._shared_dir).collect()  # type: ignore[no-untyped-call]
        found = {family.name: family.samples for family in families}
        return {
            name: found.get(spec.name if spec.origin is Origin.TOTALS else spec.family, [])
            for name, spec in self._specs.items()
        }


def _make(spec: MetricSpec, bounds: Mapping[BucketFamily, tuple[float, ...]]) -> AnyMetric:
    if spec.origin is Origin.TOTALS:
        # Several processes may know the same total; it only grows, so the highest is the latest.
        return Gauge(spec.name, spec.help, spec.labels, registry=None, multiprocess_mode="max")
    if spec.type is MetricType.COUNTER:
        return Counter(spec.name, spec.help, spec.labels, registry=None)
    if spec.buckets is None:
        return Gauge(
            spec.name, spec.help, spec.labels, registry=None, multiprocess_mode="mostrecent"
        )
    return BulkHistogram(
        spec.name, spec.help, spec.labels, registry=None, buckets=bounds[spec.buckets]
    )
