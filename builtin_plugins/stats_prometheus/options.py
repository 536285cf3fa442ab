"""Options of the stat logger `prometheus`."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Annotated

import msgspec
from msgspec import Meta

from builtin_plugins.stats_prometheus.buckets import BucketFamily

__all__ = ["PrometheusOptions"]


class PrometheusOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`plugins.options.prometheus`."""

    vllm_names: Annotated[
        bool,
        Meta(
            description="Metrics that vLLM has too are exposed under its names (`vllm:`) as well."
        ),
    ] = False
    buckets: Annotated[
        dict[BucketFamily, tuple[float, ...]],
        Meta(description="Bucket family to upper bounds of its histograms, ascending."),
    ] = {}

    def __post_init__(self) -> None:
        for family, bounds in self.buckets.items():
            ascending = all(low < high for low, high in pairwise(bounds))
            if not bounds or not ascending or not all(map(math.isfinite, bounds)):
                raise ValueError(
                    f"buckets.{family} is {list(bounds)}; it must be finite numbers, each above "
                    "the one before, and at least one"
                )
