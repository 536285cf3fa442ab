"""Prompts that are too long, or no prompts of this model."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from hookspecs.errors import InvalidRequestError
from tests.core.scripted import greedy, tokens_of


def test_what_the_cache_can_never_hold_is_refused_and_blocks_nobody(
    launch: Any, plain: Any
) -> None:
    """The cache holds 64 tokens, the model 128."""
    engine = launch(cache={"num_blocks": 4}, scheduler={"max_num_seqs": 1})
    llm = engine.engine
    llm.add_request("runs", [5] * 30, greedy(5))
    llm.step()
    llm.add_request("waits", [6] * 30, greedy(5))
    for length, limit in ((100, 1), (64, 1), (30, 35), (100, None)):
        params = msgspec.structs.replace(greedy(1), max_tokens=limit)
        with pytest.raises(InvalidRequestError, match="64"):
            llm.add_request("too long", [1] * length, params)
    done: dict[str, Any] = {}
    while llm.has_unfinished_requests():
        done.update((output.request_id, output) for output in llm.step() if output.finished)
    assert tokens_of([done["runs"], done["waits"]]) == [
        plain(engine, [5] * 30, 5),
        plain(engine, [6] * 30, 5),
    ]


def test_a_request_without_max_tokens_fills_the_context_or_the_cache(launch: Any) -> None:
    for blocks, total in ((12, 128), (4, 64)):
        engine = launch(cache={"num_blocks": blocks})
        params = msgspec.structs.replace(greedy(1), max_tokens=None)
        (output,) = engine.generate([[1] * 50], params)
        assert len(output.outputs[0].token_ids) == total - 50
        assert output.outputs[0].finish_reason == "length"


@pytest.mark.parametrize(
    "prompt",
    [
        [-1],
        [400],
        [2**62],
        [1, 2, 400],
        [1.0],
        [True],
        [1, "a"],
        [0] * 1_000_000,
        [],
        {"prompt_token_ids": []},
        {"prompt_token_ids": None},
    ],
    ids=lambda prompt: str(prompt)[:24],
)
def test_a_prompt_that_is_none_is_refused_and_harms_nobody(
    launch: Any, plain: Any, prompt: Any
) -> None:
    engine = launch()
    llm = engine.engine
    llm.add_request("other", [5, 6], greedy(4))
    llm.step()
    with pytest.raises(InvalidRequestError):
        llm.add_request("wrong", prompt, greedy(4))
    with pytest.raises(InvalidRequestError):
        engine.generate([[1, 2], prompt], greedy(4))
    done = []
    while llm.has_unfinished_requests():
        done += [output for output in llm.step() if output.finished]
    assert tokens_of(done) == [plain(engine, [5, 6], 4)]


def test_the_first_and_last_token_of_the_vocabulary_are_a_prompt(launch: Any, plain: Any) -> None:
    engine = launch()
    assert tokens_of(engine.generate([[0, 399]], greedy(4))) == [plain(engine, [0, 399], 4)]
