"""Greedy tokens equal those of plain transformers, however the work is cut into steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hookspecs.contracts.model import ResolvedModel
from tests.worker_cpu.driver import Driver, Request, random_prompt
from tests.worker_cpu.families import FAMILIES, Reference

Checkpoint = Callable[[str], ResolvedModel]
References = Callable[[str], Reference]
PROMPTS = [random_prompt(length) for length in (17, 6, 23, 1)]
COUNT = 12


@pytest.mark.parametrize("attention", ["sdpa", "cpu_paged"])
@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_equals_generate(
    family: str, attention: str, checkpoint: Checkpoint, reference: References
) -> None:
    driver = Driver(checkpoint(family), attention=attention)
    expected = [reference(family).greedy(prompt, COUNT) for prompt in PROMPTS]
    runs: dict[str, dict[str, Any]] = {
        "batched": {},
        "chunked": {"chunk": 5},
        "preempted": {"chunk": 5, "preempt_at": 6},
    }
    for name, how in runs.items():
        requests = [
            Request(prompt, COUNT, start_step=2 * index) for index, prompt in enumerate(PROMPTS)
        ]
        driver.run(*requests, **how)
        assert [request.output for request in requests] == expected, name
    for prompt, tokens in zip(PROMPTS, expected, strict=True):
        alone = Request(prompt, COUNT)
        driver.run(alone)
        assert alone.output == tokens, "alone"


@pytest.mark.parametrize("block_size", [1, 16])
def test_other_block_sizes(block_size: int, checkpoint: Checkpoint, reference: References) -> None:
    driver = Driver(checkpoint("gemma2"), block_size=block_size)
    requests = [Request(prompt, COUNT) for prompt in PROMPTS]
    driver.run(*requests, chunk=5)
    for request in requests:
        assert request.output == reference("gemma2").greedy(request.prompt, COUNT)


def test_more_requests_than_slots(checkpoint: Checkpoint, reference: References) -> None:
    driver = Driver(checkpoint("llama"), max_num_seqs=2)
    requests = [Request(prompt, 3 + index) for index, prompt in enumerate(PROMPTS)]
    driver.run(*requests)
    for request in requests:
        assert request.output == reference("llama").greedy(request.prompt, request.count)


@pytest.mark.parametrize("family", ["llama", "mistral"])
def test_a_request_as_long_as_the_context(
    family: str, checkpoint: Checkpoint, reference: References
) -> None:
    model = checkpoint(family)
    prompt = random_prompt(model.info.max_model_len - COUNT)
    request = Request(prompt, COUNT)
    Driver(model).run(request, chunk=50)
    assert request.output == reference(family).greedy(prompt, COUNT)


@pytest.mark.parametrize("family", ["llama", "gemma3", "opt"])
def test_prompt_embeds_equal_their_tokens(
    family: str, checkpoint: Checkpoint, reference: References
) -> None:
    embedded = [
        Request([0] * len(prompt), COUNT, prompt_embeds=reference(family).embeds(prompt).numpy())
        for prompt in PROMPTS[:2]
    ]
    plain = Request(PROMPTS[2], COUNT, start_step=1)
    Driver(checkpoint(family)).run(*embedded, plain, chunk=5)
    for request, prompt in zip([*embedded, plain], PROMPTS, strict=False):
        assert request.output == reference(family).greedy(prompt, COUNT)


def test_sampled_logprobs_belong_to_their_rows(
    checkpoint: Checkpoint, reference: References
) -> None:
    requests = [Request(prompt, 4, start_step=index) for index, prompt in enumerate(PROMPTS)]
    Driver(checkpoint("llama")).run(*requests, chunk=5)
    for request in requests:
        table = reference("llama").logprobs(request.prompt + request.output)
        expected = [
            table[len(request.prompt) + index - 1, token].item()
            for index, token in enumerate(request.output)
        ]
        np.testing.assert_allclose(request.logprobs, expected, atol=1e-4)
