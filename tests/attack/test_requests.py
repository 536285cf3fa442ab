"""Anything may be given as a request: it is refused as invalid, or answered; nothing stays."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest

from framework import SamplingParams
from hookspecs.errors import InvalidRequestError


class Unprintable:
    def __repr__(self) -> str:
        raise RuntimeError("no repr")


def nested(depth: int) -> list[Any]:
    made: list[Any] = []
    for _ in range(depth):
        made = [made]
    return made


ITSELF: list[Any] = []
ITSELF.append(ITSELF)
JUNK: list[Any] = [
    *(None, True, False, 0, 1, -1, 7, 49, 50, 2**31, 2**64, -(10**30), 10**5000),
    *(0.5, float("nan"), float("inf"), -float("inf"), np.int64(3), np.float32(0.5), np.zeros(2)),
    *("", "a", "\ud800", "\0", "x" * 100_000, b"x"),
    *([], [1], [True], [1.0], [None], [[1]], [[]], [[1], 2], ["a"], [""], ["\ud800"], ["a"] * 5000),
    *(list(range(50)), list(range(5000)), (1, 2), {1}, nested(5000), ITSELF),
    *({}, {1: 1.0}, {1: float("nan")}, {"a": "b"}, {True: 1}, {50: 1}, {"a": {"b": object()}}),
    *(object(), Unprintable(), [Unprintable()], print),
]


@pytest.fixture
def attacked(launch: Any, answer: Any) -> Any:
    engine = launch()
    before = answer(engine)
    yield engine
    assert answer(engine) == before


@pytest.mark.parametrize("field", SamplingParams.__struct_fields__)
def test_sampling_parameters(attacked: Any, field: str) -> None:
    for value in JUNK:
        fields = {"max_tokens": 2, "detokenize": False, "temperature": 0, field: value}
        with contextlib.suppress(InvalidRequestError):
            attacked.generate([[3, 4, 5]], SamplingParams(**fields))


def test_prompts(attacked: Any) -> None:
    params = SamplingParams(max_tokens=2)
    for value in JUNK:
        keys = ("prompt", "prompt_token_ids", "prompt_embeds", "cache_salt", "other")
        prompts = [value, [value], [[1, 2], value], *({key: value} for key in keys)]
        for prompt in (*prompts, *({"prompt_token_ids": [1], key: value} for key in keys)):
            with contextlib.suppress(InvalidRequestError):
                attacked.generate(prompt, params)
        for call in (attacked.stream, attacked.chat):
            with contextlib.suppress(InvalidRequestError):
                list(call(value, params))
        with contextlib.suppress(InvalidRequestError):
            attacked.generate([[1, 2]], value)


@pytest.mark.parametrize(
    "name",
    ["priority", "tenant", "cache_salt", "labels", "deadline", "trace_headers", "arrival_time"],
)
def test_what_comes_with_a_request(attacked: Any, name: str) -> None:
    engine = attacked.engine
    for value in JUNK:
        with contextlib.suppress(InvalidRequestError):
            engine.add_request("r", [1, 2], SamplingParams(max_tokens=2), **{name: value})
        while engine.has_unfinished_requests():
            engine.step()


def test_messages(attacked: Any) -> None:
    for value in JUNK:
        for messages in ([value], [{"role": value, "content": "x"}], [[{"role": "user"}], value]):
            with pytest.raises(InvalidRequestError):
                attacked.chat(messages)
