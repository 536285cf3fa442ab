"""The worker `scripted` with models that are not its own."""

from __future__ import annotations

from typing import Any

import pytest

import framework
from framework import SamplingParams
from tests.conformance.small_source import END, SMALL, VOCAB_SIZE

SETTINGS: dict[str, Any] = {
    "model": {"name": "small:one"},
    "executor": {"worker": "scripted"},
    "cache": {"num_blocks": 32},
    "stats": {"loggers": []},
}


def generate(params: SamplingParams, **options: Any) -> list[int]:
    settings = {**SETTINGS, "plugins": {"options": {"scripted": options}}}
    with framework.launch(settings, plugins=[SMALL]) as engine:
        (output,) = engine.generate([[3, 4]], params)
    return list(output.outputs[0].token_ids)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_tokens_are_those_of_the_model(temperature: float) -> None:
    params = SamplingParams(max_tokens=40, temperature=temperature, seed=1, detokenize=False)
    tokens = generate(params)
    assert len(tokens) == 40
    assert max(tokens) < VOCAB_SIZE
    assert len(set(tokens)) > VOCAB_SIZE // 2


def test_an_option_below_the_models_vocabulary_counts() -> None:
    params = SamplingParams(max_tokens=40, temperature=0, detokenize=False)
    assert max(generate(params, vocab_size=5)) < 5


def test_the_end_is_the_models() -> None:
    script = {"scripted": {"tokens": [3, 4]}}
    params = SamplingParams(max_tokens=9, temperature=0, detokenize=False, extensions=script)
    assert generate(params) == [3, 4, END]


def test_an_end_that_the_worker_never_gives_is_replaced_by_its_own() -> None:
    script = {"scripted": {"tokens": [3, 4]}}
    params = SamplingParams(max_tokens=3, temperature=0, detokenize=False, extensions=script)
    assert generate(params, vocab_size=5, eos_token_id=1) == [3, 4, 1]
