"""Draws: their distribution, and what they depend on."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from hookspecs.contracts.logits import SampledBatch, Sampler
from hookspecs.types.step import NewRequest

MakeSampler = Callable[..., Sampler]
MakeRequest = Callable[..., NewRequest]
Sample = Callable[..., SampledBatch]


def _logits(step: int, vocab: int = 50) -> NDArray[np.float64]:
    return np.random.default_rng(step).normal(0, 1, vocab)


@pytest.mark.parametrize("filters", [{}, {"top_k": 7}, {"min_p": 0.2}, {"top_p": 0.8}])
def test_frequencies_follow_the_distribution(
    make_sampler: MakeSampler, make_request: MakeRequest, sample: Sample, filters: dict[str, float]
) -> None:
    """Chi-square over 20000 draws: half of them along one stream, half over seeds."""
    sampler, logits = make_sampler(10, 1000), _logits(3, 10)
    draws: list[int] = []
    for slot in range(1000):
        sampler.add(make_request(slot, seed=slot, temperature=0.8, **filters))
    for _ in range(20):
        draws += sample(sampler, np.tile(logits, (1000, 1)), range(1000)).token_ids.tolist()
    weights = np.exp((logits - logits.max()) / 0.8)
    order = np.argsort(-weights)
    kept = len(order)
    if "top_k" in filters:
        kept = 7
    elif "min_p" in filters:
        kept = int((weights >= 0.2).sum())
    elif "top_p" in filters:
        kept = int((np.cumsum(weights[order]) < 0.8 * weights.sum()).sum()) + 1
    expected = np.zeros(10)
    expected[order[:kept]] = weights[order[:kept]] / weights[order[:kept]].sum() * len(draws)
    counts = np.bincount(draws, minlength=10)
    assert counts[expected == 0].sum() == 0
    within = expected > 0
    chi_square = ((counts[within] - expected[within]) ** 2 / expected[within]).sum()
    assert chi_square < 33.7  # 1 in 10000 for 9 degrees of freedom


def _stream(
    sampler: Sampler, sample: Sample, slots: Sequence[int], slot: int, steps: range
) -> list[int]:
    """Tokens of one slot; the other rows of each step hold other logits."""
    tokens = []
    for step in steps:
        rows = [_logits(step) if s == slot else _logits(1000 + 7 * s + step) for s in slots]
        tokens.append(int(sample(sampler, rows, slots).token_ids[list(slots).index(slot)]))
    return tokens


def test_seeded_draws_do_not_depend_on_neighbours_slot_or_row(
    make_sampler: MakeSampler, make_request: MakeRequest, sample: Sample
) -> None:
    alone = make_sampler(50)
    alone.add(make_request(0, seed=42, top_p=0.9))
    expected = _stream(alone, sample, [0], 0, range(20))
    assert len(set(expected)) > 5

    crowd = make_sampler(50)
    crowd.add(make_request(5, seed=42, top_p=0.9, request_id="other"))
    crowd.add(make_request(2, request_id="unseeded"))
    crowd.add(make_request(9, temperature=0, frequency_penalty=1.0))
    crowd.add(make_request(1, top_k=3, logprobs=2))
    first = _stream(crowd, sample, [9, 2, 5, 1], 5, range(10))
    crowd.remove(2)
    second = _stream(crowd, sample, [1, 5, 9], 5, range(10, 20))
    assert first + second == expected


def test_resume_continues_the_stream(
    make_sampler: MakeSampler, make_request: MakeRequest, sample: Sample
) -> None:
    sampler = make_sampler(50)
    sampler.add(make_request(0, prompt=[1, 2], seed=7))
    undisturbed = _stream(sampler, sample, [0], 0, range(12))
    sampler.remove(0)
    sampler.add(make_request(3, prompt=[1, 2], outputs=undisturbed[:5], seed=7))
    assert _stream(sampler, sample, [3], 3, range(5, 12)) == undisturbed[5:]


def test_partial_steps_do_not_advance_the_stream(
    make_sampler: MakeSampler, make_request: MakeRequest, sample: Sample
) -> None:
    """Steps in which a slot has no row (chunked prefill of it) do not count."""
    sampler = make_sampler(50)
    sampler.add(make_request(0, seed=7))
    sampler.add(make_request(1))
    expected = _stream(sampler, sample, [0], 0, range(6))
    sampler.add(make_request(0, seed=7))
    tokens = []
    for step in range(6):
        sample(sampler, [_logits(99)], [1])
        tokens += _stream(sampler, sample, [0], 0, range(step, step + 1))
    assert tokens == expected


def test_seeds_are_64_bits(
    make_sampler: MakeSampler, make_request: MakeRequest, sample: Sample
) -> None:
    sampler = make_sampler(50)
    streams = {}
    for seed in (0, 1, -1, 2**64 - 1, 2**63, -(2**63), 2**63 - 1):
        sampler.add(make_request(0, seed=seed))
        streams[seed] = _stream(sampler, sample, [0], 0, range(12))
    assert streams[-1] == streams[2**64 - 1]
    assert streams[2**63] == streams[-(2**63)]
    distinct = {tuple(stream) for stream in streams.values()}
    assert len(distinct) == 5


def test_unseeded_requests_differ_and_repeat_with_the_engine_seed(
    make_sampler: MakeSampler, make_request: MakeRequest, sample: Sample
) -> None:
    streams = {}
    for engine_seed in (0, 1):
        for request_id in ("a", "b"):
            runs = []
            for _ in range(2):
                sampler = make_sampler(50, seed=engine_seed)
                sampler.add(make_request(0, request_id=request_id))
                runs.append(tuple(_stream(sampler, sample, [0], 0, range(12))))
            assert runs[0] == runs[1]
            streams[engine_seed, request_id] = runs[0]
    assert len(set(streams.values())) == 4


@pytest.mark.parametrize("temperature", [1e-3, 1e-4, 1e-5, 1e-6, 1e-12, 0.0])
@pytest.mark.parametrize("filters", [{}, {"top_p": 0.9, "min_p": 0.1, "top_k": 5}])
def test_tiny_temperatures_equal_greedy(
    make_sampler: MakeSampler,
    make_request: MakeRequest,
    sample: Sample,
    temperature: float,
    filters: dict[str, float],
) -> None:
    sampler = make_sampler(50)
    sampler.add(make_request(0, temperature=temperature, **filters))
    expected = [int(_logits(step).argmax()) for step in range(10)]
    assert _stream(sampler, sample, [0], 0, range(10)) == expected


@pytest.mark.parametrize("params", [{"top_k": 1}, {"top_p": 1e-9}, {"min_p": 1.0, "top_k": 1}])
def test_filters_that_keep_one_token_equal_greedy(
    make_sampler: MakeSampler, make_request: MakeRequest, sample: Sample, params: dict[str, float]
) -> None:
    sampler = make_sampler(6)
    for seed in range(10):
        sampler.add(make_request(0, seed=seed, temperature=2.0, **params))
        assert sample(sampler, [[0, 3, 5, 5, 1, 5]]).token_ids.tolist() == [2]


@pytest.mark.parametrize("off", [{"top_k": 0}, {"top_k": -1}, {"top_k": 10**9}, {"top_p": 1.0}])
def test_values_that_turn_filters_off(
    make_sampler: MakeSampler, make_request: MakeRequest, sample: Sample, off: dict[str, float]
) -> None:
    sampler = make_sampler(50)
    sampler.add(make_request(0, seed=3))
    expected = _stream(sampler, sample, [0], 0, range(10))
    sampler.add(make_request(0, seed=3, **off))
    assert _stream(sampler, sample, [0], 0, range(10)) == expected


def test_greedy_takes_the_lowest_of_equals(
    make_sampler: MakeSampler, make_request: MakeRequest, sample: Sample
) -> None:
    sampler = make_sampler(4)
    for slot in (0, 1):
        sampler.add(make_request(slot, temperature=0, logit_bias={3: 1.0} if slot else None))
    assert sample(sampler, [[1, 2, 2, 2], [1, 2, 2, 1]], [0, 1]).token_ids.tolist() == [1, 1]
