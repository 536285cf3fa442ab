"""Counts, and the choice among them."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hookspecs import SamplingParams
from hypothesis import given
from hypothesis import strategies as st

from ngram_runner.choice import choose, draw, most_frequent, uniform, unsupported
from ngram_runner.counts import NgramCounts
from ngram_runner.text_tokenizer import END_ID

_TEXTS = st.lists(st.lists(st.integers(1, 4), max_size=8), min_size=1, max_size=5)
_COUNTS = st.dictionaries(st.integers(0, 9), st.integers(1, 20), min_size=1, max_size=8)


def counts_of(documents: list[list[int]], order: int) -> NgramCounts:
    ids = [token for document in documents for token in (*document, END_ID)]
    return NgramCounts(np.array(ids, np.int32), order)


@given(_TEXTS, st.integers(1, 5), st.lists(st.integers(0, 5), max_size=6))
def test_counts_are_those_of_a_search_through_the_documents(
    documents: list[list[int]], order: int, tokens: list[int]
) -> None:
    expected = []
    for length in range(min(order - 1, len(tokens)), -1, -1):
        context = tokens[len(tokens) - length :]
        found: Counter[int] = Counter()
        for document in ([*document, END_ID] for document in documents):
            for at in range(length, len(document)):
                if document[at - length : at] == context:
                    found[document[at]] += 1
        if found:
            expected.append(dict(found))
    assert [dict(each) for each in counts_of(documents, order).following(tokens)] == expected


def test_the_most_frequent_token_is_the_lowest_of_equals() -> None:
    assert most_frequent({7: 2, 3: 5, 4: 5, 9: 1}) == 3


def test_choice_backs_off_when_nothing_is_left() -> None:
    candidates = [{0: 3}, {0: 5, 8: 1}, {1: 9}]
    greedy = SamplingParams(temperature=0)
    assert choose(candidates, greedy, banned=frozenset(), number=0.0) == 0
    assert choose(candidates, greedy, banned=frozenset({0}), number=0.0) == 8
    only = SamplingParams(temperature=0, allowed_token_ids=[1])
    assert choose(candidates, only, banned=frozenset(), number=0.0) == 1
    assert choose(candidates, only, banned=frozenset({1}), number=0.0) is None


@given(_COUNTS, st.floats(0, 1, exclude_max=True))
def test_without_filters_a_draw_inverts_the_distribution(
    counts: dict[int, int], number: float
) -> None:
    ranked = sorted(counts, key=lambda token: (-counts[token], token))
    token = draw(counts, SamplingParams(temperature=1.0), number)
    before = sum(counts[each] for each in ranked[: ranked.index(token)])
    share = number * sum(counts.values())
    tolerance = 1e-9
    assert before - tolerance <= share <= before + counts[token] + tolerance


@given(
    _COUNTS,
    st.floats(0, 1, exclude_max=True),
    st.floats(1e-5, 2),
    st.integers(0, 9),
    st.floats(0.01, 1),
    st.floats(0, 1),
)
def test_a_draw_keeps_to_the_filters(
    counts: dict[int, int],
    number: float,
    temperature: float,
    top_k: int,
    top_p: float,
    min_p: float,
) -> None:
    params = SamplingParams(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    token = draw(counts, params, number)
    ranked = sorted(counts, key=lambda each: (-counts[each], each))
    assert ranked.index(token) < (top_k or len(ranked))
    relative = (counts[token] / counts[ranked[0]]) ** (1 / temperature)
    assert relative >= min_p - 1e-9
    if temperature == 1 and not top_k and not min_p:
        before = sum(counts[each] for each in ranked[: ranked.index(token)])
        assert before <= top_p * sum(counts.values()) + 1e-9


@pytest.mark.parametrize(
    ("params", "left"),
    [
        ({"top_k": 1}, {5}),
        ({"top_k": 2}, {5, 6}),
        ({"top_p": 0.5}, {5}),
        ({"top_p": 0.51}, {5, 6}),
        ({"min_p": 0.5}, {5, 6}),
        ({"min_p": 0.51}, {5}),
        ({"temperature": 0.01}, {5}),
        ({}, {5, 6, 7}),
    ],
)
def test_what_each_filter_leaves(params: dict[str, float], left: set[int]) -> None:
    counts = {7: 2, 6: 3, 5: 5}
    given = SamplingParams(**{"temperature": 1.0, **params})  # type: ignore[arg-type]
    if "min_p" in params:
        counts = {7: 2, 6: 5, 5: 10}
    assert {draw(counts, given, number / 1000) for number in range(1000)} == left


@given(st.text(max_size=20), st.integers(0, 2**31))
def test_numbers_depend_on_key_and_position_and_lie_below_one(key: str, position: int) -> None:
    assert 0 <= uniform(key, position) == uniform(key, position) < 1
    assert uniform(key, position) != uniform(key, position + 1)


def test_what_is_not_honoured_is_named() -> None:
    assert unsupported(SamplingParams(temperature=0.5, seed=1, top_k=3, top_p=0.5, min_p=0.1)) == []
    asked = SamplingParams(
        logprobs=0,
        logit_bias={1: 1.0},
        presence_penalty=0.1,
        frequency_penalty=0.1,
        repetition_penalty=1.1,
        bad_words_token_ids=[[1]],
    )
    assert unsupported(asked) == [
        "logprobs",
        "logit_bias",
        "presence_penalty",
        "frequency_penalty",
        "repetition_penalty",
        "bad_words",
    ]
