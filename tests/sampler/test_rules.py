"""Masks, bias and penalties over several tokens, and slots that change hands."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builtin_plugins.sampler_default.bad_words import BadWords
from hookspecs.contracts.logits import SampledBatch, Sampler
from hookspecs.types.step import NewRequest

MakeSampler = Callable[..., Sampler]
MakeRequest = Callable[..., NewRequest]
Sample = Callable[..., SampledBatch]


def _greedy(sampler: Sampler, sample: Sample, row: list[float], steps: int) -> list[int]:
    return [int(sample(sampler, [row]).token_ids[0]) for _ in range(steps)]


@pytest.mark.parametrize("min_tokens", [0, 1, 4])
def test_min_tokens_holds_back_every_end_token_and_does_not_count_the_prompt(
    make_sampler: MakeSampler, make_request: MakeRequest, sample: Sample, min_tokens: int
) -> None:
    sampler = make_sampler(6)
    sampler.add(
        make_request(
            prompt=[3] * 10,
            temperature=0,
            eos_token_id=1,
            stop_token_ids=[2, 99, -1],
            min_tokens=min_tokens,
            logit_bias={1: 100.0, 2: 90.0},
        )
    )
    tokens = _greedy(sampler, sample, [0, 0, 0, 5, 0, 0], min_tokens + 2)
    assert tokens == [3] * min_tokens + [1, 1]


def test_min_tokens_alone_ends_on_time(
    make_sampler: MakeSampler, make_request: MakeRequest, sample: Sample
) -> None:
    sampler = make_sampler(3)
    sampler.add(make_request(temperature=0, eos_token_id=2, min_tokens=2))
    assert _greedy(sampler, sample, [0, 1, 2], 4) == [1, 1, 2, 2]


def test_resume_counts_earlier_tokens_for_min_tokens(
    make_sampler: MakeSampler, make_request: MakeRequest, sample: Sample
) -> None:
    sampler = make_sampler(3)
    sampler.add(make_request(outputs=[1, 1], temperature=0, eos_token_id=2, min_tokens=3))
    assert _greedy(sampler, sample, [0, 1, 2], 2) == [1, 2]


def test_bad_words_of_one_and_several_tokens(
    make_sampler: MakeSampler, make_request: MakeRequest, sample: Sample
) -> None:
    sampler = make_sampler(6)
    words = [[5], [4, 3], [3, 3, 3], [4, 77], [77], []]
    sampler.add(make_request(prompt=[4], temperature=0, bad_words_token_ids=words))
    row = [0.0, 1.0, 2.0, 4.0, 3.0, 9.0]
    # 5 is never produced; the prompt's 4 starts no word; after 3 3 comes 4; after 4 no 3.
    assert _greedy(sampler, sample, row, 6) == [3, 3, 4, 4, 4, 4]


def test_bad_words_of_a_resumed_request(
    make_sampler: MakeSampler, make_request: MakeRequest, sample: Sample
) -> None:
    sampler = make_sampler(6)
    sampler.add(
        make_request(outputs=[1, 2], temperature=0, bad_words_token_ids=[[1, 2, 3], [2, 4]])
    )
    assert _greedy(sampler, sample, [0, 1, 2, 5, 4, 3], 2) == [5, 3]


@given(
    words=st.lists(st.lists(st.integers(0, 2), min_size=2, max_size=7), min_size=1, max_size=6),
    outputs=st.lists(st.integers(0, 2), max_size=40),
    resumed_at=st.integers(0, 40),
)
def test_bad_words_by_definition(
    words: list[list[int]], outputs: list[int], resumed_at: int
) -> None:
    """A token is masked when it is the last of a word and the output ends with the others."""
    rules = BadWords(words, outputs[:resumed_at])
    for count in range(min(resumed_at, len(outputs)), len(outputs) + 1):
        so_far = outputs[:count]
        expected = {word[-1] for word in words if so_far[-len(word) + 1 :] == word[:-1]}
        assert set(rules.completing().tolist()) == expected
        if count < len(outputs):
            rules.accept(outputs[count])


def test_many_long_bad_words_that_begin_alike(
    make_sampler: MakeSampler, make_request: MakeRequest, sample: Sample
) -> None:
    sampler = make_sampler(6)
    words = [[1] * length + [5] for length in range(1, 200)]
    words += [[1] * length + [2] + [1] * (200 - length) + [4] for length in range(1, 200)]
    sampler.add(make_request(temperature=0, bad_words_token_ids=words))
    row = [0.0, 1.0, 0.0, 0.0, 2.0, 3.0]
    assert _greedy(sampler, sample, row, 2) == [5, 5]
    for after, expected in ((149, [4, 5]), (150, [1, 1])):
        outputs = [1] * 50 + [2] + [1] * after
        sampler.add(make_request(outputs=outputs, temperature=0, bad_words_token_ids=words))
        assert _greedy(sampler, sample, row, 2) == expected


def test_allowed_tokens_and_bias(
    make_sampler: MakeSampler, make_request: MakeRequest, sample: Sample
) -> None:
    sampler = make_sampler(6)
    sampler.add(make_request(0, temperature=0, allowed_token_ids=[1, 2, 50]))
    sampler.add(
        make_request(1, temperature=0, allowed_token_ids=[1, 2], logit_bias={1: 3.0, 5: 100.0})
    )
    sampler.add(make_request(2, temperature=0, logit_bias={0: 10.0, 77: 1.0}))
    rows = [[0, 1, 2, 3, 4, 5]] * 3
    assert sample(sampler, rows, [0, 1, 2]).token_ids.tolist() == [2, 1, 0]


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        # Prompt 0, output 1 1 2; logits 4, 4, 4, 3, -1.
        ({"repetition_penalty": 2.0}, 3),
        ({"repetition_penalty": 0.5}, 0),
        ({"presence_penalty": 2.0}, 0),
        ({"presence_penalty": -2.0}, 1),
        ({"frequency_penalty": -2.0}, 1),
        ({"frequency_penalty": 2.0, "logit_bias": {0: -3.5}}, 3),
        ({"frequency_penalty": 0.75, "logit_bias": {0: -3.5}}, 2),
        ({"presence_penalty": 0.75, "logit_bias": {0: -3.5}}, 1),
    ],
)
def test_penalties_of_prompt_and_output(
    make_sampler: MakeSampler,
    make_request: MakeRequest,
    sample: Sample,
    params: dict[str, object],
    expected: int,
) -> None:
    sampler = make_sampler(5)
    sampler.add(make_request(prompt=[0], outputs=[1, 1, 2], temperature=0, **params))
    assert sample(sampler, [[4, 4, 4, 3, -1]]).token_ids.tolist() == [expected]


def test_repetition_penalty_makes_negative_logits_smaller(
    make_sampler: MakeSampler, make_request: MakeRequest, sample: Sample
) -> None:
    sampler = make_sampler(3)
    sampler.add(make_request(prompt=[1], temperature=0, repetition_penalty=2.0))
    assert sample(sampler, [[-9, -1, -1.5]]).token_ids.tolist() == [2]


def test_penalties_count_each_token_as_it_comes(
    make_sampler: MakeSampler, make_request: MakeRequest, sample: Sample
) -> None:
    sampler = make_sampler(3)
    sampler.add(make_request(prompt=[2], temperature=0, frequency_penalty=1.0))
    # Logits 2.5, 1.2, 0 less one for each time.
    assert _greedy(sampler, sample, [2.5, 1.2, 0], 5) == [0, 0, 1, 0, 1]


def test_penalties_survive_extreme_logits(
    make_sampler: MakeSampler, make_request: MakeRequest, sample: Sample
) -> None:
    sampler = make_sampler(3)
    sampler.add(make_request(prompt=[0, 1, 2], repetition_penalty=1e-30))
    sampler.add(make_request(1, prompt=[0, 1, 2], repetition_penalty=2.0))
    batch = sample(sampler, [[1e30, 1e30, -5], [-3e38, -3e38, -3e38]], [0, 1])
    assert not batch.failures
    assert batch.token_ids[0] in (0, 1)


def test_filler_ids_of_prompt_embeddings_are_not_penalized(
    make_sampler: MakeSampler, make_request: MakeRequest, sample: Sample
) -> None:
    sampler = make_sampler(3)
    request = make_request(prompt=[0, 0], temperature=0, repetition_penalty=2.0)
    request.prompt_embeds = np.zeros((2, 4), dtype=np.float32)
    sampler.add(request)
    assert sample(sampler, [[3, 2, 0]]).token_ids.tolist() == [0]


_EVERYTHING = {
    "temperature": 0.9,
    "seed": 11,
    "frequency_penalty": 0.7,
    "presence_penalty": 0.3,
    "repetition_penalty": 1.3,
    "bad_words_token_ids": [[3, 4], [5, 6, 7], [9]],
    "min_tokens": 9,
    "stop_token_ids": [8],
    "logit_bias": {2: 1.5},
    "top_p": 0.95,
    "min_p": 0.01,
}


def test_resume_with_all_parameters_equals_undisturbed(
    make_sampler: MakeSampler, make_request: MakeRequest, sample: Sample
) -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(0, 1, (30, 12))
    sampler = make_sampler(12)
    sampler.add(make_request(0, prompt=[1, 3], eos_token_id=0, **_EVERYTHING))
    expected = [int(sample(sampler, [row]).token_ids[0]) for row in rows]
    assert not {0, 8} & set(expected[:9])
    for cut in (1, 8, 9, 20):
        slot = cut % 5
        sampler.add(
            make_request(slot, prompt=[1, 3], outputs=expected[:cut], eos_token_id=0, **_EVERYTHING)
        )
        tokens = [int(sample(sampler, [row], [slot]).token_ids[0]) for row in rows[cut:]]
        assert tokens == expected[cut:]


def test_a_reused_slot_holds_nothing_of_its_last_request(
    make_sampler: MakeSampler, make_request: MakeRequest, sample: Sample
) -> None:
    rows = np.random.default_rng(1).normal(0, 1, (10, 12))
    fresh = make_sampler(12, 1)
    fresh.add(make_request(0, seed=1))
    expected = [int(sample(fresh, [row]).token_ids[0]) for row in rows]

    used = make_sampler(12, 1)
    for _ in range(3):
        used.add(make_request(0, prompt=[1] * 5, eos_token_id=0, logprobs=3, **_EVERYTHING))
        for row in rows:
            sample(used, [row])
        used.remove(0)
        used.remove(0)
    used.add(make_request(0, seed=1))
    batches = [sample(used, [row]) for row in rows]
    assert [int(batch.token_ids[0]) for batch in batches] == expected
    assert all(batch.logprobs is None for batch in batches)

    # A new request with penalties starts from empty counts.
    used.add(make_request(0, prompt=[0], temperature=0, presence_penalty=2.0))
    assert sample(used, [[0, 1, 1.5] + [0] * 9]).token_ids.tolist() == [2]


def test_neighbours_with_rules_leave_other_rows_alone(
    make_sampler: MakeSampler, make_request: MakeRequest, sample: Sample
) -> None:
    sampler = make_sampler(12)
    sampler.add(make_request(0, temperature=0))
    sampler.add(make_request(1, prompt=[1], eos_token_id=0, **_EVERYTHING))
    sampler.add(make_request(2, temperature=0, allowed_token_ids=[4]))
    rows = np.random.default_rng(2).normal(0, 1, (3, 12))
    tokens = sample(sampler, rows, [0, 1, 2]).token_ids
    assert tokens[0] == rows[0].argmax()
    assert tokens[2] == 4
