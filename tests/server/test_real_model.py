"""The real model behind HTTP says, token for token, what `transformers` says."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.oracle.prompts import forty_prompts
from tests.oracle.reference import Comparison, Expected, expected_tokens
from tests.server.answers import answer_of, stream_of
from tests.server.asking import COMPLETIONS, open_stream
from tests.server.process import Server

pytestmark = pytest.mark.slow

NEW_TOKENS = 5
LONGEST = 100
"""Tokens of a prompt. The few longer ones cost the reference most of its time."""
CLIENTS = 32


@pytest.fixture(scope="module")
def tokenizer(model_path: str) -> Any:
    return AutoTokenizer.from_pretrained(model_path)


@pytest.fixture(scope="module")
def reference(model_path: str, tokenizer: Any) -> list[tuple[list[int], Expected]]:
    """Prompts, and what comes after them."""

    def encode(text: str) -> list[int]:
        ids: list[int] = tokenizer(text)["input_ids"]
        return ids

    def chat(messages: list[dict[str, str]]) -> list[int]:
        return encode(
            tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        )

    model = AutoModelForCausalLM.from_pretrained(model_path, dtype=torch.float32).eval()
    eos = model.generation_config.eos_token_id
    ends = [eos] if isinstance(eos, int) else list(eos)
    return [
        (prompt, expected_tokens(model, prompt, NEW_TOKENS, ends))
        for prompt in forty_prompts(encode, chat)
        if len(prompt) <= LONGEST
    ]


def test_the_tokens_of_transformers_come_through_http(
    real: Server, tokenizer: Any, reference: list[tuple[list[int], Expected]]
) -> None:
    """Prompts from thirty-two clients at once, as text or token ids, streamed or whole;
    then again, with the prompts in the prefix cache."""
    comparison = Comparison()
    gate = asyncio.Semaphore(CLIENTS)

    async def ask(index: int, prompt: list[int]) -> list[int]:
        text = tokenizer.decode(prompt)
        as_text = index % 2 == 0 and tokenizer(text)["input_ids"] == prompt
        body = {
            "prompt": text if as_text else prompt,
            "max_tokens": NEW_TOKENS,
            "temperature": 0,
            "return_token_ids": True,
        }
        async with gate:
            if index % 4 < 2:
                async with open_stream(real, body) as events:
                    return stream_of([line async for line in events]).only.token_ids
            return answer_of(await real.client.post(COMPLETIONS, json=body)).only.token_ids

    async def ask_all() -> list[list[int]]:
        return await asyncio.gather(
            *(ask(index, prompt) for index, (prompt, _) in enumerate(reference))
        )

    real.command("reset_prefix_cache")
    for title in ("cold", "warm"):
        before = real.metrics()["prefix_cache_hits_total"]
        for index, found in enumerate(real.run(ask_all())):
            comparison.check(f"{title}: prompt {index}", reference[index][1], found)
        hits = real.metrics()["prefix_cache_hits_total"] - before
        whole = sum((len(prompt) - 1) // 16 * 16 for prompt, _ in reference)
        assert hits == whole if title == "warm" else hits < whole / 2
    comparison.report("over HTTP")
