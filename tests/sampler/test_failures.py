"""Rows without a token, next to rows that have one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hookspecs.contracts.logits import SampledBatch, Sampler
from hookspecs.types.step import NewRequest

MakeSampler = Callable[..., Sampler]
MakeRequest = Callable[..., NewRequest]
Sample = Callable[..., SampledBatch]

_GOOD = [0.0, 2.0, 1.0, -np.inf]


@pytest.mark.parametrize(
    ("row", "named"),
    [
        ([np.nan] * 4, "NaN"),
        ([0.0, np.nan, 1.0, 9.0], "NaN"),
        ([0.0, np.nan, np.inf, 9.0], "NaN"),
        ([0.0, 1.0, np.inf, 9.0], "+inf"),
        ([-np.inf] * 4, "-inf"),
    ],
)
@pytest.mark.parametrize(
    "params",
    [
        {"temperature": 0},
        {"seed": 1, "top_p": 0.5, "logprobs": 2},
        {"allowed_token_ids": [0], "presence_penalty": 1.0},
    ],
)
def test_bad_logits_fail_their_row_only(
    make_sampler: MakeSampler,
    make_request: MakeRequest,
    sample: Sample,
    row: list[float],
    named: str,
    params: dict[str, Any],
) -> None:
    sampler = make_sampler(4)
    sampler.add(make_request(0, temperature=0, logprobs=1))
    sampler.add(make_request(1, **params))
    sampler.add(make_request(2, temperature=0))
    batch = sample(sampler, [_GOOD, row, _GOOD], [0, 1, 2])
    assert list(batch.failures) == [1]
    assert named in batch.failures[1].message
    assert batch.failures[1].poisoned
    assert batch.token_ids[[0, 2]].tolist() == [1, 1]
    assert batch.logprob_rows is not None
    assert batch.logprob_rows.tolist() == [0]


def test_masking_everything_names_the_parameters(
    make_sampler: MakeSampler, make_request: MakeRequest, sample: Sample
) -> None:
    sampler = make_sampler(4)
    sampler.add(make_request(0, eos_token_id=2, min_tokens=1, allowed_token_ids=[2, 3], logprobs=1))
    sampler.add(make_request(1, temperature=0, bad_words_token_ids=[[0], [1], [2], [3]]))
    sampler.add(make_request(2, temperature=0, allowed_token_ids=[], presence_penalty=1.0))
    sampler.add(make_request(3, temperature=0))
    batch = sample(sampler, [_GOOD] * 4, [0, 1, 2, 3])
    assert sorted(batch.failures) == [0, 1, 2]
    assert not any(failure.poisoned for failure in batch.failures.values())
    first = batch.failures[0].message
    assert "allowed_token_ids" in first
    assert "min_tokens" in first
    assert "bad_words" not in first
    assert "bad_words" in batch.failures[1].message
    assert "allowed_token_ids" in batch.failures[2].message
    assert batch.token_ids[3] == 1
    assert batch.logprobs is None


def test_a_failed_row_is_not_counted(
    make_sampler: MakeSampler, make_request: MakeRequest, sample: Sample
) -> None:
    rows = np.random.default_rng(0).normal(0, 1, (8, 20))
    sampler = make_sampler(20)
    sampler.add(make_request(0, seed=5))
    expected = [int(sample(sampler, [row]).token_ids[0]) for row in rows]
    sampler.add(make_request(0, seed=5))
    tokens = []
    for row in rows:
        assert 0 in sample(sampler, [[np.nan] * 20]).failures
        tokens.append(int(sample(sampler, [row]).token_ids[0]))
    assert tokens == expected


def test_no_rows(make_sampler: MakeSampler, sample: Sample) -> None:
    batch = sample(make_sampler(4), np.zeros((0, 4)), [])
    assert batch.token_ids.tolist() == []
    assert not batch.failures
