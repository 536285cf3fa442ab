"""Upper bounds of the histograms' buckets, by family."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

__all__ = ["BucketFamily", "bounds", "one_two_five"]


class BucketFamily(StrEnum):
    """Histograms of one family have the same buckets."""

    REQUEST_LATENCY = "request_latency"
    """Seconds."""
    TIME_TO_FIRST_TOKEN = "time_to_first_token"
    """Seconds."""
    INTER_TOKEN_LATENCY = "inter_token_latency"
    """Seconds."""
    ITERATION_TOKENS = "iteration_tokens"
    REQUEST_TOKENS = "request_tokens"
    """By default the series 1, 2, 5 up to the length that the model allows."""
    REQUEST_PARAMS_N = "request_params_n"
    REQUEST_NUM_PREEMPTIONS = "request_num_preemptions"


DEFAULTS: Final[dict[BucketFamily, tuple[float, ...]]] = {
    BucketFamily.REQUEST_LATENCY: (
        *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0),
        *(120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0),
    ),
    BucketFamily.TIME_TO_FIRST_TOKEN: (
        *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5),
        *(10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
    ),
    BucketFamily.INTER_TOKEN_LATENCY: (
        *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5),
        *(10.0, 20.0, 40.0, 80.0),
    ),
    BucketFamily.ITERATION_TOKENS: (1.0, *(float(2**power) for power in range(3, 15))),
    BucketFamily.REQUEST_PARAMS_N: (1.0, 2.0, 5.0, 10.0, 20.0),
    BucketFamily.REQUEST_NUM_PREEMPTIONS: (1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 20.0),
}
UNKNOWN_LEN: Final = 1_000_000
"""Tokens; longest request when the model does not say."""


def one_two_five(limit: int) -> tuple[float, ...]:
    """1, 2, 5, 10, 20, 50 ... up to `limit`, and at least 1."""
    found, power = [1.0], 1
    while power <= limit:
        found += [float(digit * power) for digit in (1, 2, 5) if 1 < digit * power <= limit]
        power *= 10
    return tuple(found)


def bounds(
    overrides: Mapping[BucketFamily, tuple[float, ...]], max_model_len: int
) -> dict[BucketFamily, tuple[float, ...]]:
    """The bounds of every family. `max_model_len`: tokens; 0: unknown."""
    return {
        **DEFAULTS,
        BucketFamily.REQUEST_TOKENS: one_two_five(max_model_len or UNKNOWN_LEN),
        **overrides,
    }
