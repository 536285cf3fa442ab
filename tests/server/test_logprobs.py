"""Logprobs of outputs and prompts, in the forms of both endpoints."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from tests.server.asking import CHAT, Ask, greedy, says
from tests.server.conftest import VOCABULARY
from tests.server.process import Server

SLOPE = [token / 10 for token in range(VOCABULARY)]
"""Logits that make the last tokens likely."""
TOTAL = math.log(sum(math.exp(value) for value in SLOPE))
MESSAGES = [{"role": "user", "content": "hi"}]


def from_slope(**fields: Any) -> dict[str, Any]:
    return {
        "max_tokens": 12,
        "ignore_eos": True,
        "seed": 3,
        "extensions": {"scripted": {"logits": [SLOPE]}},
        **fields,
    }


@pytest.mark.parametrize("k", [0, 1, 5, 20])
def test_a_chat_has_exactly_k_alternatives(scripted: Server, ask: Ask, k: int) -> None:
    """`top_logprobs` has k entries, the most likely first, whatever token was chosen."""
    body = from_slope(messages=MESSAGES, temperature=1.8, logprobs=True, top_logprobs=k)
    choice = ask(scripted, body, CHAT).only
    assert len(choice.logprobs["content"]) == len(choice.token_ids) == 12
    for token, entry in zip(choice.token_ids, choice.logprobs["content"], strict=True):
        assert entry["logprob"] == pytest.approx(SLOPE[token] - TOTAL, abs=1e-4)
        expected = [SLOPE[-1 - rank] - TOTAL for rank in range(k)]
        assert [e["logprob"] for e in entry["top_logprobs"]] == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("k", [0, 1, 5, 20])
def test_a_completion_has_k_alternatives_and_the_chosen_token(
    scripted: Server, ask: Ask, k: int
) -> None:
    """k entries; one more where the chosen token is not among the k most likely."""
    body = from_slope(prompt=[1, 2], temperature=1.8, logprobs=k)
    choice = ask(scripted, body).only
    for token, likely in zip(choice.token_ids, choice.logprobs["top_logprobs"], strict=True):
        assert len(likely) == (k if token >= VOCABULARY - k else k + 1)


@pytest.mark.parametrize("chat", [False, True])
def test_more_alternatives_than_allowed_are_refused(scripted: Server, ask: Ask, chat: bool) -> None:
    """At most 100 are allowed, and none below 0: status 400 that names the field."""
    for k in (1_000_000, -1, -2, 101, VOCABULARY, VOCABULARY + 1, 2**63, True, "5", 1.5):
        if chat:
            body = from_slope(messages=MESSAGES, logprobs=True, top_logprobs=k)
            assert "logprobs" in ask(scripted, body, CHAT).refusal()
        else:
            assert "logprobs" in ask(scripted, from_slope(prompt=[1, 2], logprobs=k)).refusal()


def test_twenty_one_alternatives_are_within_the_limit(scripted: Server, ask: Ask) -> None:
    """The limit is this server's, not the twenty of the OpenAI API."""
    body = from_slope(messages=MESSAGES, logprobs=True, top_logprobs=21)
    choice = ask(scripted, body, CHAT).only
    assert {len(entry["top_logprobs"]) for entry in choice.logprobs["content"]} == {21}


@pytest.mark.parametrize("fields", [{"top_k": 1}, {"top_p": 0.3}, {"min_p": 1.0}])
def test_filters_leave_logprobs_finite_and_of_the_model(
    scripted: Server, ask: Ask, fields: dict[str, float]
) -> None:
    """Logprobs are the model's own, so that none is minus infinity."""
    body = from_slope(messages=MESSAGES, logprobs=True, top_logprobs=5, temperature=1, **fields)
    choice = ask(scripted, body, CHAT).only
    expected = [SLOPE[-1 - rank] - TOTAL for rank in range(5)]
    for entry in choice.logprobs["content"]:
        assert [e["logprob"] for e in entry["top_logprobs"]] == pytest.approx(expected, abs=1e-4)


def test_tokens_that_are_impossible_have_a_number(scripted: Server, ask: Ask) -> None:
    """Minus infinity is no JSON; the lowest number stands for it."""
    row = [-1e30] * VOCABULARY
    row[5] = 0.0
    body = {"prompt": [1, 2], "max_tokens": 3, "temperature": 0, "logprobs": 3}
    body["extensions"] = {"scripted": {"logits": [row]}}
    choice = ask(scripted, body).only
    for likely in choice.logprobs["top_logprobs"]:
        assert sorted(likely.values()) == [-9999.0, -9999.0, 0.0]
    json.dumps(choice.logprobs, allow_nan=False)


@pytest.mark.parametrize("max_tokens", [0, 4])
@pytest.mark.parametrize("logprobs", [None, 0, 1])
def test_echo_gives_the_prompt_and_its_logprobs(
    scripted: Server, ids: Any, ask: Ask, logprobs: int | None, max_tokens: int
) -> None:
    """Text and entries of the prompt come before those of the output; the first token, which
    nothing predicts, has null; offsets say where each token is in the text."""
    prompt = "DEF abc \U0001f600 tail\n\n"
    script = ids("cat", "\n", "\u4f60", "HI")
    body = says(script, prompt=prompt, echo=True, max_tokens=max_tokens)
    if logprobs is not None:
        body["logprobs"] = logprobs
    answer = ask(scripted, body)
    choice = answer.only
    output = "cat\n\u4f60HI" if max_tokens else ""
    assert choice.text == prompt + output
    assert choice.finish_reason == "length"
    if logprobs is None:
        assert choice.logprobs == {}
        return
    tokens, offsets = choice.logprobs["tokens"], choice.logprobs["text_offset"]
    assert len(tokens) == len(ids(prompt)) + max_tokens
    assert "".join(tokens) == choice.text
    assert [choice.text[begin:].startswith(t) for t, begin in zip(tokens, offsets, strict=True)]
    assert offsets == sorted(offsets)
    numbers, likely = choice.logprobs["token_logprobs"], choice.logprobs["top_logprobs"]
    assert (numbers[0], likely[0]) == (None, None)
    assert all(math.isfinite(number) for number in numbers[1:])
    assert len(numbers) == len(likely) == len(tokens)


@pytest.mark.parametrize("length", [15, 16, 17, 40])
def test_prompt_logprobs_are_the_same_each_time(
    scripted: Server, ask: Ask, plain: Any, length: int
) -> None:
    """Whether or not the prefix cache has the prompt; the model's own continuation is likely in
    it, all else is not."""
    said = plain([9, 8], length - 4)
    prompt = [9, 8, *said, 7, 7]
    body = greedy(prompt, 3, prompt_logprobs=2)
    first = ask(scripted, body).only.prompt_logprobs
    ask(scripted, greedy(prompt, 3))
    again = ask(scripted, body).only.prompt_logprobs
    assert first is not None
    assert first == again
    assert len(first) == length
    assert first[0] is None
    for token, position in zip(prompt[1:], first[1:], strict=True):
        assert str(token) in position
    likely = [position[str(t)]["rank"] for t, position in zip(said, first[2:-2], strict=True)]
    assert likely == [1] * len(said)


@pytest.mark.parametrize("first", [0, 1])
def test_prompt_logprobs_of_prompts_that_share_a_prefix(
    scripted: Server, ask: Ask, first: int
) -> None:
    """In both orders, and with nothing cached (a salt of its own), they are the same."""
    shared = [3 + i * 7 % 90 for i in range(34)]
    prompts = [[*shared, 91, 92], [*shared, 93, 94, 95]]
    order = [first, 1 - first]
    found = [ask(scripted, greedy(prompts[i], 3, prompt_logprobs=2)).only for i in order]
    fresh = [
        ask(scripted, greedy(prompts[i], 3, prompt_logprobs=2, cache_salt=f"{first} {i}")).only
        for i in order
    ]
    assert [c.prompt_logprobs for c in found] == [c.prompt_logprobs for c in fresh]
