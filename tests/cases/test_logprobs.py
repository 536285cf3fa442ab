"""Logprobs of outputs, and of prompts next to a prefix cache."""

from __future__ import annotations

import math
from typing import Any

import pytest

from framework import SamplingParams
from tests.core.scripted import greedy

BLOCK = 4
PROMPT = [3 + i * 7 % 90 for i in range(40)]


@pytest.mark.parametrize("k", [0, 1, 5, 20])
def test_exactly_k_alternatives_and_the_chosen_token(launch: Any, k: int) -> None:
    row = [i / 10 for i in range(32)]
    engine = launch(scripted={"vocab_size": 32})
    params = SamplingParams(
        seed=3,
        temperature=1.8,
        max_tokens=30,
        logprobs=k,
        ignore_eos=True,
        detokenize=False,
        extensions={"scripted": {"logits": [row]}},
    )
    (output,) = engine.generate([[1, 2]], params)
    total = math.log(sum(math.exp(value) for value in row))
    outside = 0
    for token, position in zip(
        output.outputs[0].token_ids, output.outputs[0].logprobs, strict=True
    ):
        assert next(iter(position)) == token
        assert {entry.rank for entry in position.values()} >= set(range(1, k + 1))
        outside += len(position) == k + 1
        assert len(position) == (k if position[token].rank <= k else k + 1)
        for token_id, entry in position.items():
            assert entry.logprob == pytest.approx(row[token_id] - total, abs=1e-5)
            assert entry.rank == 32 - token_id
    assert outside or k == 20


@pytest.mark.parametrize("fields", [{"top_k": 1}, {"top_p": 0.3}, {"min_p": 1.0}])
def test_filters_leave_logprobs_finite_and_of_the_model(launch: Any, fields: Any) -> None:
    engine = launch()
    plain = engine.generate([[1, 2]], greedy(5, logprobs=5))
    filtered = engine.generate([[1, 2]], greedy(5, logprobs=5, temperature=1.0, **fields))
    assert filtered[0].outputs[0].logprobs == plain[0].outputs[0].logprobs
    for position in filtered[0].outputs[0].logprobs:
        assert len(position) == 5
        assert all(math.isfinite(entry.logprob) for entry in position.values())


@pytest.fixture
def fresh(launch: Any) -> Any:
    """Prompt logprobs of a prompt alone, without prefix cache."""
    engine = launch(cache={"enable_prefix_caching": False}, scripted={"vocab_size": 100})

    def ask(prompt: list[int]) -> Any:
        (output,) = engine.generate([prompt], greedy(3, prompt_logprobs=2))
        assert len(output.prompt_logprobs) == len(prompt)
        assert output.prompt_logprobs[0] is None
        assert all(
            token in position
            for token, position in zip(prompt[1:], output.prompt_logprobs[1:], strict=True)
        )
        return output.prompt_logprobs

    return ask


def start(launch: Any, **sections: Any) -> Any:
    cache = {"block_size": BLOCK, "num_blocks": 32, **sections.pop("cache", {})}
    return launch(cache=cache, scripted={"vocab_size": 100}, **sections)


@pytest.mark.parametrize("length", [1, BLOCK - 1, BLOCK, BLOCK + 1, 31, 32, 33, 40])
def test_prompt_logprobs_are_the_same_each_time(launch: Any, fresh: Any, length: int) -> None:
    engine = start(launch)
    prompt = PROMPT[:length]
    expected = fresh(prompt)
    for _ in range(3):
        (output,) = engine.generate([prompt], greedy(3, prompt_logprobs=2))
        assert output.prompt_logprobs == expected
        assert output.num_cached_tokens == 0
    # They cost others nothing: what was computed for them is found.
    (plain,) = engine.generate([prompt], greedy(3))
    assert plain.num_cached_tokens == (length - 1) // BLOCK * BLOCK


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("first", [0, 1])
def test_prompt_logprobs_of_prompts_that_share_a_prefix(
    launch: Any, fresh: Any, first: int, together: bool
) -> None:
    prompts = [[*PROMPT[:18], 91, 92], [*PROMPT[:18], 93, 94, 95]]
    prompts = [prompts[first], prompts[1 - first]]
    engine = start(launch)
    params = [greedy(3, prompt_logprobs=2), greedy(3, prompt_logprobs=2)]
    if together:
        outputs = engine.generate(prompts, params)
    else:
        outputs = [engine.generate([p], q)[0] for p, q in zip(prompts, params, strict=True)]
    assert [output.prompt_logprobs for output in outputs] == [fresh(p) for p in prompts]


def test_prompt_logprobs_of_a_request_that_is_preempted_in_its_prompt(
    launch: Any, fresh: Any, watcher: Any
) -> None:
    engine = start(
        launch,
        cache={"num_blocks": 12},
        scheduler={"policies": ["priority"], "max_num_batched_tokens": 8},
        plugins_options={"priority": {"preempt_running": True}},
    )
    llm = engine.engine
    llm.add_request("slow", PROMPT, greedy(3, prompt_logprobs=2), priority=1)
    for _ in range(3):
        assert llm.step() == []
    llm.add_request("urgent", PROMPT[:20], greedy(6), priority=0)
    outputs: dict[str, Any] = {}
    while llm.has_unfinished_requests():
        outputs.update((output.request_id, output) for output in llm.step())
    assert watcher.num_preempted == 1
    assert outputs["slow"].prompt_logprobs == fresh(PROMPT)


def test_prompt_logprobs_of_requests_that_are_preempted_in_their_output(
    launch: Any, fresh: Any, watcher: Any
) -> None:
    prompts = [[90 + i, *PROMPT[:9]] for i in range(4)]
    engine = start(launch, cache={"num_blocks": 16})
    outputs = engine.generate(prompts, greedy(30, prompt_logprobs=2))
    assert watcher.num_preempted > 0
    assert [output.prompt_logprobs for output in outputs] == [fresh(p) for p in prompts]
