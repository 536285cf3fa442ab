"""Percentiles and means."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

__all__ = ["PERCENTILES", "Distribution", "distribution"]

PERCENTILES: Final = (50, 90, 95, 99)


class Distribution(msgspec.Struct, frozen=True, kw_only=True):
    """Of values with weights. Percentile p is by nearest rank: the smallest value such that the
    values up to it have at least p % of the weight. So each is a value that occurred."""

    count: float
    """Sum of the weights: how many were measured."""
    mean: float
    median: float
    p90: float
    p95: float
    p99: float
    max: float


def distribution(
    values: Sequence[float], weights: Sequence[float] | None = None
) -> Distribution | None:
    """None without values. `weights`: > 0, one for each; None: each value counts once."""
    if not values:
        return None
    import numpy as np

    data = np.asarray(values, dtype=np.float64)
    weight = np.ones(len(data)) if weights is None else np.asarray(weights, dtype=np.float64)
    order = np.argsort(data, kind="stable")
    data, weight = data[order], weight[order]
    summed = np.cumsum(weight)
    total = float(summed[-1])
    # A sum of fractions may lie below the rank that it reaches by a rounding error.
    wanted = np.array(PERCENTILES) / 100 * total * (1 - 1e-12)
    at = np.minimum(np.searchsorted(summed, wanted), len(data) - 1)
    median, p90, p95, p99 = (float(value) for value in data[at])
    return Distribution(
        count=total,
        mean=float(data @ weight) / total,
        median=median,
        p90=p90,
        p95=p95,
        p99=p99,
        max=float(data[-1]),
    )
