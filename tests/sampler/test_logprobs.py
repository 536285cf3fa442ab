"""Log-probabilities: of the raw logits, the asked number, finite, ranked."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from hookspecs.contracts.logits import SampledBatch, Sampler
from hookspecs.types.step import LogprobColumns, NewRequest

MakeSampler = Callable[..., Sampler]
MakeRequest = Callable[..., NewRequest]
Sample = Callable[..., SampledBatch]
Entry = tuple[int, float, int]


def _positions(columns: LogprobColumns | None) -> list[list[Entry]]:
    assert columns is not None
    assert columns.token_ids.dtype == columns.ranks.dtype == columns.counts.dtype == np.int32
    assert columns.logprobs.dtype == np.float32
    assert np.isfinite(columns.logprobs).all()
    entries = list(
        zip(
            columns.token_ids.tolist(),
            columns.logprobs.tolist(),
            columns.ranks.tolist(),
            strict=True,
        )
    )
    bounds = np.concatenate([[0], np.cumsum(columns.counts)]).tolist()
    assert bounds[-1] == len(entries)
    return [entries[a:b] for a, b in itertools.pairwise(bounds)]


def _expected(row: NDArray[np.float64], target: int, count: int) -> list[Entry]:
    shifted = row - row.max()
    logprobs = np.maximum(shifted - np.log(np.exp(shifted).sum()), -9999.0)
    order = sorted(range(len(row)), key=lambda i: (-row[i], i))
    wanted = [target, *order[: len(row) if count < 0 else count]]
    return [(i, float(logprobs[i]), int((row > row[i]).sum()) + 1) for i in wanted]


def _assert_equal(found: list[Entry], expected: list[Entry]) -> None:
    assert [(i, rank) for i, _, rank in found] == [(i, rank) for i, _, rank in expected]
    assert [p for _, p, _ in found] == pytest.approx([p for _, p, _ in expected], abs=2e-5)


@settings(max_examples=60, deadline=None)
@given(
    vocab=st.sampled_from([3, 40, 700]),
    counts=st.lists(st.sampled_from([-1, 0, 1, 2, 5, 20, 10**6]), min_size=1, max_size=5),
    rng_seed=st.integers(0, 2**32),
)
def test_prompt_logprobs_match_definitions(
    make_sampler: MakeSampler, vocab: int, counts: list[int], rng_seed: int
) -> None:
    """Logits are rounded, so that many are equal: of these the lower id comes first."""
    rng = np.random.default_rng(rng_seed)
    rows = rng.normal(0, 3, (len(counts), vocab)).round(1)
    targets = rng.integers(0, vocab, len(counts))
    for count in counts:
        columns = make_sampler(vocab).prompt_logprobs(
            torch.tensor(rows, dtype=torch.float32), torch.as_tensor(targets), count
        )
        for row, target, found in zip(
            rows.astype(np.float32).astype(np.float64),
            targets.tolist(),
            _positions(columns),
            strict=True,
        ):
            _assert_equal(found, _expected(row, target, count))


def test_sampled_logprobs_are_raw_and_hold_the_asked_number(
    make_sampler: MakeSampler, make_request: MakeRequest, sample: Sample
) -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(0, 2, (6, 30)).round(2)
    sampler = make_sampler(30)
    asked = [None, 0, 5, -1, 20, 1]
    changes: list[dict[str, Any]] = [
        {"temperature": 0},
        {"top_k": 1},
        {"top_p": 0.3, "allowed_token_ids": [3, 4]},
        {"logit_bias": {2: 100.0}, "prompt": [7]},
        {"temperature": 0, "repetition_penalty": 2.0},
        {"temperature": 2.0},
    ]
    for slot, (count, change) in enumerate(zip(asked, changes, strict=True)):
        sampler.add(make_request(slot, logprobs=count, **change))
    batch = sample(sampler, rows, range(6))
    assert batch.logprob_rows is not None
    assert batch.logprob_rows.tolist() == [1, 2, 3, 4, 5]
    positions = _positions(batch.logprobs)
    assert [len(entries) for entries in positions] == [1, 6, 31, 21, 2]
    raw = rows.astype(np.float32).astype(np.float64)
    for row, entries in zip(batch.logprob_rows.tolist(), positions, strict=True):
        count = asked[row]
        assert count is not None
        _assert_equal(entries, _expected(raw[row], int(batch.token_ids[row]), count))


def test_masked_raw_logits_give_finite_values(
    make_sampler: MakeSampler, make_request: MakeRequest, sample: Sample
) -> None:
    sampler = make_sampler(4)
    sampler.add(make_request(0, temperature=0, logprobs=-1))
    batch = sample(sampler, [[-np.inf, 3.0, -np.inf, -1e30]])
    (entries,) = _positions(batch.logprobs)
    assert entries[:2] == [(1, 0.0, 1), (1, 0.0, 1)]
    assert {p for _, p, _ in entries[2:]} == {-9999.0}
    assert [rank for _, _, rank in entries[2:]] == [2, 3, 3]


def test_nan_in_prompt_logits_gives_finite_values(make_sampler: MakeSampler) -> None:
    logits = torch.full((1, 4), torch.nan)
    columns = make_sampler(4).prompt_logprobs(logits, torch.tensor([1]), 2)
    assert set(columns.logprobs.tolist()) == {-9999.0}


def test_no_prompt_positions(make_sampler: MakeSampler) -> None:
    columns = make_sampler(4).prompt_logprobs(
        torch.zeros((0, 4)), torch.zeros(0, dtype=torch.int64), 2
    )
    assert _positions(columns) == []
