"""Sampling parameters at their edges, through the engine."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from framework import SamplingParams
from hookspecs.errors import InvalidRequestError
from tests.core.scripted import greedy

VOCABULARY = 32
LIKELY = 9
CLEAR = [[3.0 if token == LIKELY else token / 32 for token in range(VOCABULARY)]]


def rows(logits: list[list[float]], max_tokens: int = 8, **fields: Any) -> SamplingParams:
    return greedy(max_tokens, {"logits": logits}, **fields)


def favour(*order: int) -> list[list[float]]:
    """One row of logits that prefers these tokens, in this order."""
    row = [0.0] * VOCABULARY
    for place, token in enumerate(order):
        row[token] = 20.0 - place
    return [row]


@pytest.fixture
def engine(launch: Any) -> Any:
    return launch(scripted={"vocab_size": VOCABULARY})


def tokens(engine: Any, params: SamplingParams, prompt: list[int] | None = None) -> list[int]:
    (output,) = engine.generate([prompt or [1, 3]], params)
    assert output.outputs[0].error is None
    found: list[int] = output.outputs[0].token_ids
    return found


def test_tiny_temperatures_are_greedy(engine: Any) -> None:
    plain = tokens(engine, greedy(8))
    for temperature in (1e-3, 1e-4, 1e-5, 1e-6, 1e-12, 5e-324, 0.0, 0):
        params = rows(CLEAR, temperature=temperature, seed=1)
        assert tokens(engine, params) == [LIKELY] * 8, temperature
        assert tokens(engine, greedy(8, temperature=temperature)) == plain, temperature


@pytest.mark.parametrize(
    "field",
    [
        *("temperature", "top_p", "min_p"),
        *("presence_penalty", "frequency_penalty", "repetition_penalty"),
    ],
)
def test_numbers_that_are_none_are_refused_while_others_run(engine: Any, field: str) -> None:
    engine.engine.add_request("other", [5, 6], greedy(3))
    for value in (float("nan"), float("inf"), float("-inf"), "nan", None):
        with pytest.raises(InvalidRequestError, match=field) as caught:
            engine.generate([[1, 2]], msgspec.structs.replace(greedy(3), **{field: value}))
        # Any JSON encoder can write the error.
        json.dumps(caught.value.value, allow_nan=False)


@pytest.mark.parametrize("top_k", [0, -1, VOCABULARY, 2**31 - 1])
def test_values_that_turn_top_k_off(engine: Any, top_k: int) -> None:
    even = [[0.0] * VOCABULARY]
    plain = tokens(engine, rows(even, 60, temperature=1.0, seed=5))
    assert tokens(engine, rows(even, 60, temperature=1.0, seed=5, top_k=top_k)) == plain
    assert len(set(plain)) > 8


@pytest.mark.parametrize("fields", [{"top_k": 1}, {"top_p": 1e-9}, {"min_p": 1.0}])
def test_filters_that_keep_one_token(engine: Any, fields: dict[str, Any]) -> None:
    assert tokens(engine, rows(CLEAR, temperature=2.0, seed=5, **fields)) == [LIKELY] * 8


@pytest.mark.parametrize(
    "fields", [{"top_k": -2}, {"top_k": 2**31}, {"top_p": 0.0}, {"top_p": 1.01}, {"min_p": -0.1}]
)
def test_filters_out_of_range_are_refused(engine: Any, fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequestError, match=next(iter(fields))):
        engine.generate([[1, 2]], greedy(3, **fields))


@pytest.mark.parametrize("min_tokens", [0, 1, 4, 8])
@pytest.mark.parametrize("prompt", [[1], [1] * 40])
def test_end_tokens_come_right_after_min_tokens(
    engine: Any, min_tokens: int, prompt: list[int]
) -> None:
    """The end token and a stop token are the two most likely tokens, and biased."""
    for ends in ([2, 5], [5, 2]):
        params = rows(
            favour(*ends, 7),
            20,
            min_tokens=min_tokens,
            ignore_eos=False,
            stop_token_ids=[5],
            logit_bias={2: 100.0, 5: 100.0},
        )
        assert tokens(engine, params, prompt) == [7] * min_tokens + ends[:1]


def test_min_tokens_of_a_request_that_is_preempted(launch: Any, watcher: Any) -> None:
    engine = launch(scripted={"vocab_size": VOCABULARY}, cache={"block_size": 4, "num_blocks": 12})
    params = rows(favour(2, 7), 40, min_tokens=20, ignore_eos=False)
    outputs = engine.generate([[1, 3 + i] for i in range(4)], params)
    assert watcher.num_preempted > 0
    assert [output.outputs[0].token_ids for output in outputs] == [[7] * 20 + [2]] * 4


def test_repetition_penalty_sees_prompt_and_output_the_others_output_only(engine: Any) -> None:
    # Logits 20 (token 9), 19 (token 8), 0 for the rest; 9 is in the prompt.
    ranked, prompt = favour(9, 8), [9, 1]
    assert tokens(engine, rows(ranked, 3, repetition_penalty=2.0), prompt) == [8, 9, 9]
    for name in ("presence_penalty", "frequency_penalty"):
        assert tokens(engine, rows(ranked, 2, **{name: 2.0}), prompt) == [9, 8]
        assert tokens(engine, rows(ranked, 3, **{name: -2.0}), prompt) == [9, 9, 9]
    # 20, 18 against 19, 17, 15: presence counts once, frequency each time.
    assert tokens(engine, rows(ranked, 6, presence_penalty=2.0)) == [9, 8, 9, 9, 9, 9]
    assert tokens(engine, rows(ranked, 6, frequency_penalty=2.0)) == [9, 8, 9, 8, 9, 8]


def test_penalties_of_requests_that_are_preempted(launch: Any, watcher: Any) -> None:
    params = rows(favour(9, 8, 10), 25, frequency_penalty=1.5, repetition_penalty=1.1)
    prompts = [[3 + i] * 5 for i in range(4)]
    found = []
    for num_blocks in (64, 12):
        engine = launch(
            scripted={"vocab_size": VOCABULARY}, cache={"block_size": 4, "num_blocks": num_blocks}
        )
        assert watcher.num_preempted == 0
        found.append([o.outputs[0].token_ids for o in engine.generate(prompts, params)])
    assert watcher.num_preempted > 0
    assert found[0] == found[1]


@pytest.mark.parametrize(
    "fields",
    [
        {"repetition_penalty": 0.0},
        {"repetition_penalty": -1.0},
        {"frequency_penalty": 2.1},
        {"presence_penalty": -2.1},
    ],
)
def test_penalties_out_of_range_are_refused(engine: Any, fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequestError, match=next(iter(fields))):
        engine.generate([[1, 2]], greedy(3, **fields))


def test_bad_words_appear_in_no_form(launch: Any, ids: Any) -> None:
    """`cat` is one token, ` cat` are two, and the model wants nothing but to say them."""
    engine = launch(text=True)
    cat, space = ids("cat")[0], ids(" ")[0]
    assert len(ids("cat")) == 1 and len(ids(" cat")) == 2
    row = [0.0] * 400
    row[space], row[cat], row[ids("a")[0]] = 9.0, 10.0, 5.0
    logits = [row, [10.0 if token == space else value for token, value in enumerate(row)]]
    params = SamplingParams(
        temperature=0,
        max_tokens=12,
        bad_words=["cat"],
        extensions={"scripted": {"logits": logits}},
    )
    (plain,) = engine.generate("abc", msgspec.structs.replace(params, bad_words=None))
    assert "cat" in plain.outputs[0].text
    (output,) = engine.generate("abc", params)
    assert output.outputs[0].text
    assert "cat" not in output.outputs[0].text
    bad_end = SamplingParams(
        temperature=0,
        max_tokens=4,
        bad_words=["tail"],
        extensions={"scripted": {"tokens": ids("t", "tail", "a", "b")}},
    )
    (output,) = engine.generate("abc", bad_end)
    assert "tail" not in output.outputs[0].text


def test_bad_words_of_several_tokens_after_preemption(launch: Any, ids: Any, watcher: Any) -> None:
    engine = launch(text=True, cache={"block_size": 4, "num_blocks": 12})
    x, y = ids("x", "y")
    params = SamplingParams(
        temperature=0,
        max_tokens=25,
        bad_words=["xy"],
        extensions={"scripted": {"tokens": [x, y] * 13}},
        ignore_eos=True,
    )
    outputs = engine.generate([[30 + i] * 4 for i in range(4)], params)
    assert watcher.num_preempted > 0
    for output in outputs:
        assert "xy" not in output.outputs[0].text
        assert output.outputs[0].token_ids == outputs[0].outputs[0].token_ids


@pytest.mark.parametrize("word", ["\u0007", ""])
def test_a_bad_word_without_tokens_is_refused(launch: Any, word: str) -> None:
    engine = launch(text=True)
    with pytest.raises(InvalidRequestError, match=r"bad.word"):
        engine.generate("abc", SamplingParams(temperature=0, max_tokens=3, bad_words=[word]))


def test_rules_that_leave_no_token_end_their_request_only(engine: Any) -> None:
    nothing = greedy(3, allowed_token_ids=[4], bad_words_token_ids=[[4]])
    outputs = engine.generate([[1, 2], [5, 6]], [nothing, greedy(3)])
    assert outputs[0].outputs[0].finish_reason == "error"
    assert "allowed_token_ids" in outputs[0].outputs[0].error
    assert outputs[1].outputs[0].finish_reason == "length"
