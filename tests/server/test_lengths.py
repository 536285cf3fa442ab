"""Lengths of prompts and outputs at their limits, and prompts that are none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.server.answers import Answer
from tests.server.asking import CHAT, Ask, greedy
from tests.server.conftest import SCRIPTED, VOCABULARY, Start
from tests.server.process import Server

LIMIT = 128
"""Of the tight server, in tokens."""
SMALL = ("--cache.block_size", "16", "--cache.num_blocks", "4")
CHAT_BODY = {"messages": [{"role": "user", "content": "hi"}], "temperature": 0, "ignore_eos": True}


@pytest.fixture(scope="session")
def shared_fitted(start_for_all: Start, pieces: Path) -> Server:
    return start_for_all(f"scripted:{pieces}", *SCRIPTED, *SMALL)


@pytest.fixture
def fitted(shared_fitted: Server) -> Iterator[Server]:
    """A cache of 64 tokens, and a model that was made for more."""
    yield shared_fitted
    shared_fitted.check_alive()


@pytest.fixture(scope="session")
def shared_small(start_for_all: Start, pieces: Path) -> Server:
    wanted = ("--model.max_model_len", "128")
    return start_for_all(f"scripted:{pieces}", *SCRIPTED, *SMALL, *wanted)


@pytest.fixture
def small(shared_small: Server) -> Iterator[Server]:
    """A cache of 64 tokens, and a limit of 128 that was asked for."""
    yield shared_small
    shared_small.check_alive()


def usage_fields(ask: Ask) -> dict[str, Any]:
    return {"stream_options": {"include_usage": True}} if ask.form.streamed else {}


def num_tokens(answer: Answer) -> int:
    """Of the prompt and the output that ended by its length."""
    assert answer.only.finish_reason == "length"
    assert answer.usage is not None
    assert answer.usage["completion_tokens"] == len(answer.only.token_ids)
    total: int = answer.usage["total_tokens"]
    return total


def test_no_max_tokens_is_sixteen_for_completions(tight: Server, ask: Ask, plain: Any) -> None:
    """As the OpenAI API has it."""
    body = greedy([5, 6], 0)
    del body["max_tokens"]
    assert ask(tight, body).only.token_ids == plain([5, 6], 16)


def test_null_max_tokens_fills_the_context(tight: Server, ask: Ask) -> None:
    """Of a completion."""
    body = {**greedy([5, 6], 0), "max_tokens": None, **usage_fields(ask)}
    assert num_tokens(ask(tight, body)) == LIMIT


@pytest.mark.parametrize("fields", [{}, {"max_tokens": None}, {"max_completion_tokens": None}])
def test_a_chat_without_max_tokens_fills_the_context(
    tight: Server, ask: Ask, fields: dict[str, None]
) -> None:
    """Whether it is null or absent."""
    assert num_tokens(ask(tight, {**CHAT_BODY, **fields, **usage_fields(ask)}, CHAT)) == LIMIT


@pytest.mark.parametrize(
    ("fields", "count"),
    [
        ({"max_completion_tokens": 5}, 5),
        ({"max_tokens": 5}, 5),
        ({"max_tokens": 9, "max_completion_tokens": 4}, 4),
        ({"max_tokens": 4, "max_completion_tokens": 9}, 9),
    ],
)
def test_max_completion_tokens_wins(
    tight: Server, ask: Ask, fields: dict[str, int], count: int
) -> None:
    """The newer name alone is honoured, and wins over the older one; the reason is length."""
    choice = ask(tight, {**CHAT_BODY, **fields}, CHAT).only
    assert len(choice.token_ids) == count
    assert choice.finish_reason == "length"


@pytest.mark.parametrize("max_tokens", [1, 50, None])
def test_a_prompt_one_short_of_the_limit_gets_one_token(
    tight: Server, ask: Ask, plain: Any, max_tokens: int | None
) -> None:
    """However many are asked for; the reason is length."""
    prompt = [3] * (LIMIT - 1)
    choice = ask(tight, {**greedy(prompt, 1), "max_tokens": max_tokens}).only
    assert choice.token_ids == plain(prompt, 1)
    assert choice.finish_reason == "length"


@pytest.mark.parametrize("length", [LIMIT, LIMIT + 1, 100_000])
def test_a_prompt_at_or_above_the_limit_is_refused(tight: Server, ask: Ask, length: int) -> None:
    """Status 400 that names the length and the limit."""
    for max_tokens in (1, None):
        body = {**greedy([3] * length, 1), "max_tokens": max_tokens}
        message = ask(tight, body).refusal()
        assert str(length) in message
        assert str(LIMIT) in message


def test_a_limit_fitted_to_the_cache_is_the_limit_everywhere(
    fitted: Server, ask: Ask, plain: Any
) -> None:
    """The list of models shows it, and what is longer is refused, below the limit of the model
    too."""
    (card,) = fitted.get("/v1/models").json()["data"]
    assert card["max_model_len"] == 64
    for length in (64, 100, 5000):
        assert "64" in ask(fitted, greedy([3] * length, 1)).refusal()
    for max_tokens in (14, 100, None):
        body = {**greedy([3] * 50, 1), "max_tokens": max_tokens}
        assert ask(fitted, body).only.token_ids == plain([3] * 50, 14)


def test_what_the_cache_can_never_hold_is_refused(small: Server, ask: Ask, plain: Any) -> None:
    """It is told at once and blocks nobody."""
    for length, max_tokens in ((100, 1), (64, 1), (30, 35), (100, None)):
        body = {**greedy([3] * length, 1), "max_tokens": max_tokens}
        assert "64" in ask(small, body).refusal()
    assert ask(small, greedy([3] * 30, 34)).only.token_ids == plain([3] * 30, 34)


@pytest.mark.parametrize(
    "prompt",
    ["", [""], [], [[]], ["ok", ""], [[1, 2], []], [[1, 2], "ok"], ["ok", [1]], None, 7, {}],
    ids=str,
)
def test_an_empty_or_mixed_prompt_is_refused(scripted: Server, ask: Ask, prompt: Any) -> None:
    """Also where one of several prompts is empty."""
    assert "prompt" in ask(scripted, greedy(prompt, 3)).refusal()


@pytest.mark.parametrize(
    "prompt",
    [
        *([-1], [VOCABULARY], [2**62], [2**63], [2**64], [1, 2, VOCABULARY], [[1, 2], [-1]]),
        *([1.0], [True], [1, "a"], ["a", 1], [None], [1, None], [[1], 2], [[[1]]]),
        [0] * 1_000_000,
    ],
    ids=lambda prompt: str(prompt)[:24],
)
def test_token_ids_that_are_none_are_refused(scripted: Server, ask: Ask, prompt: Any) -> None:
    """Outside the vocabulary, not integers, or far too many."""
    assert len(ask(scripted, greedy(prompt, 3)).refusal()) < 1000


def test_the_first_and_last_token_of_the_vocabulary_are_a_prompt(
    scripted: Server, ask: Ask, plain: Any
) -> None:
    """They are answered."""
    prompt = [0, VOCABULARY - 1]
    assert ask(scripted, greedy(prompt, 4)).only.token_ids == plain(prompt, 4)


def test_one_prompt_of_several_that_is_too_long_refuses_all(tight: Server, ask: Ask) -> None:
    """No output is missing or out of order, because there is none."""
    assert "128" in ask(tight, greedy([[1, 2], [3] * 200, [4]], 3)).refusal()
