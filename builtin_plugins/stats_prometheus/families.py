"""What is exposed: every metric of the catalogue, in its order, under one or two names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from prometheus_client.metrics_core import Metric
from prometheus_client.samples import Sample

from builtin_plugins.stats_prometheus.catalogue import CATALOGUE, MetricSpec, MetricType

__all__ = ["Families"]


class Families:
    """Samples as prometheus-client's `generate_latest` takes them."""

    def __init__(self, samples: Mapping[str, Sequence[Sample]], *, vllm_names: bool) -> None:
        """`samples`: of every metric, by name."""
        self._samples = samples
        self._vllm_names = vllm_names

    def collect(self) -> Iterable[Metric]:
        """A metric without samples is there, empty."""
        for spec in CATALOGUE:
            # When a series began is not in the catalogue.
            samples = [
                sample
                for sample in self._samples[spec.name]
                if not sample.name.endswith("_created")
            ]
            yield _family(spec.family, spec, samples)
            if self._vllm_names and spec.vllm:
                renamed = [_renamed(sample, spec) for sample in samples]
                yield _family(spec.vllm, spec, renamed)


def _family(name: str, spec: MetricSpec, samples: list[Sample]) -> Metric:
    if spec.type is MetricType.COUNTER:
        name = name.removesuffix("_total")
    family = Metric(name, spec.help, spec.type.value)
    family.samples = samples
    return family


def _renamed(sample: Sample, spec: MetricSpec) -> Sample:
    labels = {spec.vllm_labels.get(name, name): value for name, value in sample.labels.items()}
    return sample._replace(name=spec.vllm + sample.name[len(spec.name) :], labels=labels)
