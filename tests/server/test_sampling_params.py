"""Sampling parameters at their edges, from the JSON of a client to the sampler."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.byte_pieces import EOS
from tests.server.answers import answer_of
from tests.server.asking import CHAT, COMPLETIONS, Ask, greedy, says
from tests.server.conftest import VOCABULARY
from tests.server.process import Server

LIKELY = 9
CLEAR = [[3.0 if token == LIKELY else token / VOCABULARY for token in range(VOCABULARY)]]
EVEN = [[0.0] * VOCABULARY]


def from_rows(rows: list[list[float]], max_tokens: int = 8, **fields: Any) -> dict[str, Any]:
    return greedy([1, 3], max_tokens, extensions={"scripted": {"logits": rows}}, **fields)


def favour(*order: int) -> list[list[float]]:
    """One row of logits that prefers these tokens, in this order."""
    row = [0.0] * VOCABULARY
    for place, token in enumerate(order):
        row[token] = 20.0 - place
    return [row]


def with_fields(body: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {**body, **fields}


@pytest.mark.parametrize("min_tokens", [0, 1])
def test_stop_tokens_outside_the_vocabulary_are_refused(
    scripted: Server, ask: Ask, min_tokens: int
) -> None:
    """Also where they would be kept back for `min_tokens`."""
    for token in (VOCABULARY, VOCABULARY + 5, -1, 2**40, 2**63):
        body = greedy([1, 2], 4, stop_token_ids=[5, token], min_tokens=min_tokens)
        assert "stop_token_ids" in ask(scripted, body).refusal()
    body = greedy([1, 2], 4, logit_bias={str(VOCABULARY): 1.0}, min_tokens=min_tokens)
    assert "logit_bias" in ask(scripted, body).refusal()


def test_bad_words_appear_in_no_form(scripted: Server, ids: Any, ask: Ask) -> None:
    """`cat` is one token, ` cat` are two; the model wants nothing but to say them."""
    cat, space, a = ids("cat")[0], ids(" ")[0], ids("a")[0]
    first, second = [0.0] * VOCABULARY, [0.0] * VOCABULARY
    first[space], first[cat], first[a] = 9.0, 10.0, 5.0
    second[space], second[cat], second[a] = 10.0, 10.0, 5.0
    body = {
        "prompt": "abc",
        "temperature": 0,
        "max_tokens": 12,
        "extensions": {"scripted": {"logits": [first, second]}},
    }
    assert "cat" in ask(scripted, body).only.text
    choice = ask(scripted, with_fields(body, bad_words=["cat"])).only
    assert choice.text
    assert "cat" not in choice.text


@pytest.mark.parametrize("words", [["\u0007"], [""], ["cat", ""], "cat", [1], [["cat"]]])
def test_bad_words_without_tokens_are_refused(scripted: Server, ask: Ask, words: Any) -> None:
    """A word that is nothing to the tokenizer, and what is no list of words."""
    ask(scripted, says([5], bad_words=words)).refusal()


def test_tiny_temperatures_are_greedy(scripted: Server, ask: Ask, plain: Any) -> None:
    """On a model with clear logits all of them are as 0."""
    for temperature in (1e-3, 1e-4, 1e-5, 1e-6, 1e-12, 5e-324, 0, 0.0, -0.0):
        body = from_rows(CLEAR, temperature=temperature, seed=1)
        assert ask(scripted, body).only.token_ids == [LIKELY] * 8, temperature
        body = with_fields(greedy([1, 2], 8), temperature=temperature)
        assert ask(scripted, body).only.token_ids == plain([1, 2], 8), temperature


@pytest.mark.parametrize(
    "field",
    [
        *("temperature", "top_p", "min_p"),
        *("presence_penalty", "frequency_penalty", "repetition_penalty"),
    ],
)
@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
def test_numbers_that_are_none_are_refused(
    scripted: Server, streamed: bool, path: str, field: str
) -> None:
    """NaN and infinities, which are no JSON, and texts: status 400 in valid JSON."""
    for value in ("NaN", "Infinity", "-Infinity", '"nan"', '"1"', "1e999", "true", "[]", "{}"):
        prompt = '"prompt": [1, 2]'
        if path == CHAT:
            prompt = '"messages": [{"role": "user", "content": "hi"}]'
        data = f'{{{prompt}, "stream": {json.dumps(streamed)}, "{field}": {value}}}'
        answer = answer_of(
            scripted.request(
                "POST", path, content=data, headers={"content-type": "application/json"}
            )
        )
        answer.refusal()


@pytest.mark.parametrize(
    "data",
    [
        b'{"prompt": [1], "max_tokens": 2, "max_tokens": 3}',
        b'{"prompt": "\xff\xfe"}',
        b'{"prompt": "\\ud800"}',
        b'{"prompt": [1], "top_k": 1.0}',
        b'{"prompt": [1]',
        b"[]",
        b"null",
        b"",
        b'{"prompt": ' + b"[" * 5000 + b"]" * 5000 + b"}",
        b'{"prompt": [1], "unknown": 1}',
    ],
    ids=lambda data: repr(data)[2:40],
)
def test_a_body_that_is_no_request_is_refused(scripted: Server, data: bytes) -> None:
    """Duplicate keys, bytes that are no UTF-8, half surrogate pairs and the like."""
    headers = {"content-type": "application/json"}
    answer_of(scripted.request("POST", COMPLETIONS, content=data, headers=headers)).refusal()


@pytest.mark.parametrize("top_k", [0, -1, VOCABULARY, 2**31 - 1])
def test_values_that_turn_top_k_off(scripted: Server, ask: Ask, top_k: int) -> None:
    """0 and -1 are off, as is more than the vocabulary."""
    body = from_rows(EVEN, 40, temperature=1.0, seed=5)
    off = ask(scripted, body).only.token_ids
    assert ask(scripted, with_fields(body, top_k=top_k)).only.token_ids == off
    assert len(set(off)) > 20


@pytest.mark.parametrize("fields", [{"top_k": 1}, {"top_p": 1e-9}, {"min_p": 1.0}])
def test_filters_that_keep_one_token(scripted: Server, ask: Ask, fields: dict[str, Any]) -> None:
    """The most likely one."""
    body = from_rows(CLEAR, seed=5, **fields)
    assert ask(scripted, with_fields(body, temperature=2.0)).only.token_ids == [LIKELY] * 8


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("top_k", (-2, 10**9 * 10, 2**63, 1.5, True)),
        ("top_p", (1.01, -0.1)),
        ("min_p", (-0.1, 1.1)),
        ("temperature", (-0.1, 2.1)),
        ("repetition_penalty", (0, -1, 2.1)),
        ("frequency_penalty", (2.1, -2.1)),
        ("presence_penalty", (2.1, -2.1)),
        ("min_tokens", (-1, 2**63, 9, 1.5)),
        ("max_tokens", (-1, 0, 2**31, 2**63, 2**64, 1.5, True, "4")),
        ("priority", (2**63, 2**70, -(2**70), "high", 1.5, True)),
    ],
)
def test_numbers_out_of_range_are_refused(
    scripted: Server, ask: Ask, field: str, values: tuple[Any, ...]
) -> None:
    """Status 400, of which most name the field; never the opposite of what was asked."""
    for value in values:
        ask(scripted, with_fields(from_rows(CLEAR), **{field: value})).refusal()


@pytest.mark.parametrize(
    "fields", [{"priority": None}, {"priority": -(2**63)}, {"top_p": 1}, {"top_k": 10**9}]
)
def test_numbers_at_the_edge_are_taken(scripted: Server, ask: Ask, fields: dict[str, Any]) -> None:
    """null is as not given."""
    assert ask(scripted, from_rows(CLEAR, **fields)).only.token_ids == [LIKELY] * 8


@pytest.mark.parametrize("min_tokens", [0, 1, 4, 8])
@pytest.mark.parametrize("length", [1, 40])
def test_end_tokens_come_right_after_min_tokens(
    scripted: Server, ask: Ask, min_tokens: int, length: int
) -> None:
    """The end token and a stop token are the most likely tokens, and biased; the prompt does not
    count."""
    for ends in ([EOS, 5], [5, EOS]):
        body = from_rows(
            favour(*ends, 7),
            20,
            min_tokens=min_tokens,
            stop_token_ids=[5],
            logit_bias={str(EOS): 100.0, "5": 100.0},
        )
        choice = ask(scripted, with_fields(body, ignore_eos=False, prompt=[1] * length)).only
        assert choice.token_ids == [7] * min_tokens + ends[:1]
        assert choice.finish_reason == "stop"


def test_no_string_stops_before_min_tokens(scripted: Server, ids: Any, ask: Ask) -> None:
    """A stop string that comes too early is text."""
    script = ids("abc", "stop!", "abc", "stop!", "tail")
    choice = ask(scripted, says(script, stop="stop", min_tokens=3)).only
    assert choice.text == "abcstop!abc"
    assert choice.token_ids == script[:4]


def test_repetition_penalty_sees_prompt_and_output_the_others_output_only(
    scripted: Server, ask: Ask
) -> None:
    """A token of the prompt is made less likely by repetition penalty from the first step on,
    and not by the others."""
    ranked = favour(9, 8)

    def tokens(count: int, prompt: list[int], **fields: float) -> list[int]:
        body = with_fields(from_rows(ranked, count, **fields), prompt=prompt)
        return ask(scripted, body).only.token_ids

    assert tokens(3, [9, 1], repetition_penalty=2.0) == [8, 9, 9]
    for name in ("presence_penalty", "frequency_penalty"):
        assert tokens(2, [9, 1], **{name: 2.0}) == [9, 8]
        assert tokens(3, [9, 1], **{name: -2.0}) == [9, 9, 9]
    assert tokens(6, [1, 3], presence_penalty=2.0) == [9, 8, 9, 9, 9, 9]
    assert tokens(6, [1, 3], frequency_penalty=2.0) == [9, 8, 9, 8, 9, 8]


def test_penalties_of_a_long_output(scripted: Server, ask: Ask) -> None:
    """Every token is used about as often as any other."""
    body = from_rows(EVEN, 450, frequency_penalty=2.0, repetition_penalty=1.2)
    tokens = ask(scripted, body).only.token_ids
    assert len(tokens) == 450
    counts = [tokens.count(token) for token in set(tokens)]
    assert len(counts) >= VOCABULARY - 1
    assert max(counts) - min(counts) <= 1
