"""A small engine, and a check that nothing of what was thrown at it is left."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import framework
from framework import SamplingParams
from framework.launcher import Engine

Launch = Callable[..., Engine]


def settings(**sections: Any) -> dict[str, Any]:
    """The scripted worker with small blocks; `sections` override."""
    made: dict[str, Any] = {
        "model": {"name": "scripted"},
        "executor": {"worker": "scripted"},
        "cache": {"block_size": 4, "num_blocks": 32},
        "scheduler": {"max_num_seqs": 4, "max_num_batched_tokens": 32},
        "stats": {"loggers": []},
        "plugins": {"options": {"scripted": {"vocab_size": 50, "max_model_len": 64}}},
    }
    for section, values in sections.items():
        made[section] = {**made.get(section, {}), **values}
    return made


@pytest.fixture
def launch() -> Iterator[Launch]:
    """Makes engines, and closes them."""
    engines: list[Engine] = []

    def make(*plugins: object, **sections: Any) -> Engine:
        engines.append(framework.launch(settings(**sections), plugins=plugins))
        return engines[-1]

    yield make
    for engine in engines:
        engine.shutdown()


def answer(engine: Engine) -> list[int]:
    """What the engine says to an ordinary request, after which it must hold nothing."""
    params = SamplingParams(max_tokens=4, temperature=0, ignore_eos=True, detokenize=False)
    (output,) = engine.generate([[5, 6, 7, 8, 9]], params)
    assert output.outputs[0].finish_reason == "length"
    assert engine.engine.num_requests == 0
    assert not engine.engine.has_unfinished_requests()
    assert engine.reset_prefix_cache(), "blocks are in use"
    return output.outputs[0].token_ids


@pytest.fixture(name="answer")
def answer_fixture() -> Callable[[Engine], list[int]]:
    return answer
