"""All parameters together against a plain float64 implementation of their definitions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from builtin_plugins.sampler_default.compiled_draws import Draw, best_draw
from builtin_plugins.sampler_default.counter_rng import uniforms
from builtin_plugins.sampler_default.draws import DrawColumns, draw
from hookspecs.contracts.logits import SampledBatch, Sampler
from hookspecs.types.step import NewRequest

_MASK = 2**64 - 1


def _splitmix(seed: int, position: int) -> float:
    """The documented generator on Python integers."""

    def mix(z: int) -> int:
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
        return z ^ (z >> 31)

    gamma = 0x9E3779B97F4A7C15
    start = mix((seed + gamma) & _MASK)
    return (mix((start + (position + 1) * gamma) & _MASK) >> 11) * 2.0**-53


@given(st.lists(st.tuples(st.integers(0, _MASK), st.integers(0, 2**31)), max_size=5))
def test_uniforms_are_the_documented_generator(keys: list[tuple[int, int]]) -> None:
    seeds = np.array([seed for seed, _ in keys], dtype=np.uint64)
    positions = np.array([position for _, position in keys], dtype=np.int64)
    expected = [_splitmix(seed, position) for seed, position in keys]
    assert uniforms(seeds, positions).tolist() == expected
    assert all(0 <= value < 1 for value in expected)


def _masked(logits: NDArray[np.float64], request: NewRequest) -> NDArray[np.float64]:
    """Everything before temperature."""
    params = request.sampling_params
    outputs = request.token_ids[request.num_prompt_tokens :]
    x = logits.copy()
    if params.allowed_token_ids is not None:
        x[[i for i in range(len(x)) if i not in params.allowed_token_ids]] = -np.inf
    for word in params.bad_words_token_ids or []:
        prefix = word[:-1]
        if not prefix or outputs[-len(prefix) :] == prefix:
            x[word[-1]] = -np.inf
    if len(outputs) < params.min_tokens:
        assert request.eos_token_id is not None
        x[[request.eos_token_id, *(params.stop_token_ids or [])]] = -np.inf
    for token, bias in (params.logit_bias or {}).items():
        x[token] += bias
    for token in set(request.token_ids):
        penalty = params.repetition_penalty
        x[token] = x[token] / penalty if x[token] > 0 else x[token] * penalty
    for token in set(outputs):
        x[token] -= params.frequency_penalty * outputs.count(token) + params.presence_penalty
    return x


def _distribution(x: NDArray[np.float64], request: NewRequest) -> NDArray[np.float64]:
    """Weights of the tokens that are kept, 0 of the others."""
    params = request.sampling_params
    order = sorted(range(len(x)), key=lambda i: (-x[i], i))
    weights = np.exp((x - x.max()) / params.temperature)
    order = [i for i in order if weights[i] >= params.min_p]
    if params.top_k > 0:
        order = order[: params.top_k]
    if params.top_p < 1:
        sums = np.cumsum(weights[order])
        limit = params.top_p * math.fsum(weights[order])
        off = np.abs(sums - limit)
        assume(not ((off > 0) & (off < 1e-12 * limit)).any())  # rounding would decide
        order = order[: int((sums < limit).sum()) + 1]
    kept = np.zeros(len(x))
    kept[order] = weights[order]
    return kept


@st.composite
def _params(draw: Callable[..., Any], vocab: int) -> dict[str, Any]:
    """Values whose float32 arithmetic is exact, so that both sides agree on every tie."""
    token = st.integers(0, vocab - 1)
    optional = {
        "temperature": st.sampled_from([0.0, 0.3, 0.7, 1.0, 2.0]),
        "top_k": st.sampled_from([0, -1, 1, 2, 3, 255, 256, 257, 4000, 10**9]),
        "top_p": st.sampled_from([1e-9, 0.1, 0.3, 0.5, 0.9, 0.999, 1.0]),
        "min_p": st.sampled_from([0.0, 1e-6, 0.05, 0.3, 1.0]),
        "presence_penalty": st.sampled_from([-2.0, 0.5, 2.0]),
        "frequency_penalty": st.sampled_from([-2.0, 0.25, 2.0]),
        "repetition_penalty": st.sampled_from([0.5, 2.0]),
        "logit_bias": st.dictionaries(token, st.sampled_from([-100.0, 2.5, 100.0]), max_size=3),
        "allowed_token_ids": st.lists(token, min_size=4, max_size=40, unique=True),
        "bad_words_token_ids": st.lists(st.lists(token, min_size=1, max_size=3), max_size=2),
        "min_tokens": st.integers(0, 3),
        "seed": st.integers(0, 2**63),
    }
    chosen: dict[str, Any] = draw(st.fixed_dictionaries({}, optional=optional))
    return chosen


@settings(max_examples=120, deadline=None)
@given(data=st.data(), vocab=st.sampled_from([5, 300, 5000]), rng_seed=st.integers(0, 2**32))
def test_batch_matches_definitions(
    make_sampler: Callable[..., Sampler],
    make_request: Callable[..., NewRequest],
    data: st.DataObject,
    vocab: int,
    rng_seed: int,
) -> None:
    rng = np.random.default_rng(rng_seed)
    sampler = make_sampler(vocab)
    requests = []
    for slot in range(data.draw(st.integers(1, 4))):
        params = {"seed": slot, "stop_token_ids": [1]} | data.draw(_params(vocab))
        prompt = rng.integers(0, vocab, 3).tolist()
        outputs = rng.integers(0, min(vocab, 20), data.draw(st.integers(0, 4))).tolist()
        requests.append(make_request(slot, prompt, outputs, eos_token_id=0, **params))
        sampler.add(requests[-1])
    # Multiples of 1/8 (exact, and often equal), with a spread that lets filters keep few or many.
    spread = data.draw(st.sampled_from([4, 40, 100]))
    logits = np.clip(rng.normal(0, spread, (len(requests), vocab)).round(), -800, 800) / 8
    batch = sampler.sample(
        torch.as_tensor(logits.astype(np.float32)), np.arange(len(requests), dtype=np.int32)
    )
    for row, request in enumerate(requests):
        token = int(batch.token_ids[row])
        x = _masked(logits[row], request)
        if x.max() == -np.inf:
            assert row in batch.failures
            continue
        assert row not in batch.failures
        params_used = request.sampling_params
        if params_used.greedy:
            assert token == int(x.argmax())
            continue
        position = len(request.token_ids) - request.num_prompt_tokens
        assert params_used.seed is not None
        sums = np.cumsum(_distribution(x, request))
        share = _splitmix(params_used.seed, position) * sums[-1]
        if np.abs(sums - share).min() > 1e-9 * sums[-1]:
            assert token == int((sums <= share).sum())


_EQUAL_LOGITS = [({"top_k": k}, k) for k in (1, 255, 256, 257, 4095, 4096, 4097)] + [
    ({"top_p": 0.5}, 2500),
    ({"top_p": 0.01}, 50),
    ({"min_p": 0.5}, 5000),
    ({"top_k": 4000, "top_p": 0.5, "min_p": 0.1}, 2000),
]


@pytest.mark.parametrize(("params", "kept"), _EQUAL_LOGITS)
def test_filters_of_equal_logits_keep_exactly_the_lowest_ids(
    make_sampler: Callable[..., Sampler],
    make_request: Callable[..., NewRequest],
    sample: Callable[..., SampledBatch],
    params: dict[str, Any],
    kept: int,
) -> None:
    sampler = make_sampler(5000, 60)
    for slot in range(60):
        sampler.add(make_request(slot, seed=slot, **params))
    tokens = sample(sampler, np.zeros((60, 5000)), range(60)).token_ids
    assert tokens.max() < kept
    # The largest of 60 draws is below this with a probability of 1e-4.
    assert tokens.max() >= 0.85 * (kept - 1)


_DRAWS: list[Draw] = [draw, best_draw(torch.device("cpu"))]
"""With torch, and as it is where kernels can be compiled."""


@pytest.mark.parametrize("draw_tokens", _DRAWS)
@pytest.mark.parametrize(("uniform", "token"), [(0.0, 1), (1 - 2**-53, 2)])
def test_no_uniform_draws_a_token_of_weight_zero(
    draw_tokens: Draw, uniform: float, token: int
) -> None:
    columns = DrawColumns(
        temperature=np.ones(2),
        min_p=np.zeros(2),
        top_k=np.array([4, 3]),
        top_p=np.ones(2),
        uniforms=np.full(2, uniform),
        filtered=np.array([False, True]),
    )
    logits = torch.tensor([[-torch.inf, 1.0, 2.0, -torch.inf]] * 2)
    assert draw_tokens(logits, np.arange(2), columns).tolist() == [token, token]


@settings(max_examples=100, deadline=None)
@given(data=st.data(), seed=st.integers(0, 2**32), vocab=st.sampled_from([1, 2, 31, 33, 700, 9000]))
def test_kernel_and_torch_draw_the_same(data: st.DataObject, seed: int, vocab: int) -> None:
    rng, rows = np.random.default_rng(seed), 5
    logits = rng.normal(0, 1, (rows, vocab)) * data.draw(st.sampled_from([0.0, 0.1, 1, 3, 100]))
    if data.draw(st.booleans()):
        logits = logits.round()  # equal ones
    if data.draw(st.booleans()):
        logits[:, 1:][:, rng.random(vocab - 1) < 0.5] = -np.inf
    columns = DrawColumns(
        temperature=rng.choice([1e-5, 0.3, 1.0, 2.0], rows),
        min_p=rng.choice([0, 0, 1e-6, 0.2, 1.0], rows),
        top_k=np.minimum(vocab, rng.choice([vocab, vocab, 1, 5, 300], rows)),
        top_p=rng.choice([1, 0.999, 0.9, 0.5, 1e-6], rows),
        uniforms=rng.random(rows),
        filtered=np.zeros(rows, dtype=np.bool_),
    )
    columns.filtered = (columns.min_p > 0) | (columns.top_k < vocab) | (columns.top_p < 1)
    tensor = torch.as_tensor(logits.astype(np.float32))
    order = rng.permutation(rows)
    first, second = (each(tensor, order, columns).tolist() for each in _DRAWS)
    assert first == second
