"""Logprobs of output and prompt equal the reference's, at block and chunk boundaries."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

import framework
from conftest import MODEL, RealModel
from framework import Logprob, RequestOutput, SamplingParams
from framework.launcher import Engine

BLOCK, CHUNK = 8, 20
TOLERANCE = 1e-4
LENGTHS = sorted({k * n + d for n in (BLOCK, CHUNK) for k in (1, 2, 3) for d in (-1, 0, 1)})


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> tuple[torch.nn.Module, str]:
    torch.manual_seed(5)
    settings = AutoConfig.for_model(
        "llama",
        vocab_size=160,
        hidden_size=48,
        intermediate_size=64,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
        eos_token_id=None,
    )
    model = AutoModelForCausalLM.from_config(settings).float().eval()
    folder = tmp_path_factory.mktemp("tiny")
    model.save_pretrained(folder)
    return model, str(folder)


@pytest.fixture(scope="module")
def engine(tiny: tuple[torch.nn.Module, str]) -> Iterator[Engine]:
    with framework.launch(
        {
            "model": {"name": tiny[1], "tokenizer": "none", "dtype": "float32"},
            "cache": {"num_blocks": 128, "block_size": BLOCK},
            "scheduler": {"long_prefill_token_threshold": CHUNK},
            "executor": {"threads": 1},
            "stats": {"loggers": []},
        }
    ) as engine:
        yield engine


def params(**fields: Any) -> SamplingParams:
    return SamplingParams(temperature=0, max_tokens=4, detokenize=False, ignore_eos=True, **fields)


def prompt_of(length: int) -> list[int]:
    generator = torch.Generator().manual_seed(length)
    ids: list[int] = torch.randint(1, 160, (length,), generator=generator).tolist()
    return ids


@torch.inference_mode()
def reference(model: torch.nn.Module, tokens: list[int]) -> torch.Tensor:
    """float32 [tokens, vocab]: row i is the distribution of token i + 1."""
    return torch.log_softmax(model(torch.tensor([tokens])).logits[0].float(), -1)


def check_position(
    got: dict[int, Logprob], want: torch.Tensor, chosen: int, alternatives: int
) -> None:
    best = torch.topk(want, alternatives)
    assert len(got) in (alternatives, alternatives + 1)
    assert next(iter(got)) == chosen
    for token, logprob in got.items():
        assert math.isfinite(logprob.logprob)
        assert abs(logprob.logprob - float(want[token])) < TOLERANCE
    ranked = sorted((entry.rank, entry.logprob) for entry in got.values())
    assert [rank for rank, _ in ranked[:alternatives]] == list(range(1, alternatives + 1))
    for (_, logprob), value in zip(ranked, best.values.tolist(), strict=False):
        assert abs(logprob - value) < TOLERANCE
    assert got[chosen].rank == int((want > want[chosen]).sum()) + 1


def check(output: RequestOutput, model: torch.nn.Module, prompt: list[int]) -> None:
    completion = output.outputs[0]
    want = reference(model, prompt + completion.token_ids)
    assert completion.logprobs is not None
    assert len(completion.logprobs) == len(completion.token_ids)
    total = 0.0
    for index, (token, got) in enumerate(
        zip(completion.token_ids, completion.logprobs, strict=True)
    ):
        check_position(got, want[len(prompt) + index - 1], token, 5)
        total += got[token].logprob
    assert completion.cumulative_logprob == pytest.approx(total)
    if output.prompt_logprobs is not None:
        assert len(output.prompt_logprobs) == len(prompt)
        assert output.prompt_logprobs[0] is None
        for index, entry in enumerate(output.prompt_logprobs[1:], 1):
            assert entry is not None
            check_position(entry, want[index - 1], prompt[index], 3)


@pytest.mark.parametrize("length", LENGTHS)
def test_cold_cached_and_with_prompt_logprobs(
    engine: Engine, tiny: tuple[torch.nn.Module, str], length: int
) -> None:
    model, _ = tiny
    prompt = prompt_of(length)
    assert engine.reset_prefix_cache()
    plain = engine.generate([prompt], params())[0].outputs[0].token_ids
    runs = [
        engine.generate([prompt], params(logprobs=5))[0],
        engine.generate([prompt], params(logprobs=5, prompt_logprobs=3))[0],
        engine.generate([prompt], params(logprobs=5))[0],
        engine.generate([prompt], params(logprobs=5, prompt_logprobs=3))[0],
    ]
    for output in runs:
        assert output.outputs[0].token_ids == plain
        check(output, model, prompt)
    cached = (length - 1) // BLOCK * BLOCK
    assert [output.num_cached_tokens for output in runs] == [cached, 0, cached, 0]
    assert runs[1].prompt_logprobs == runs[3].prompt_logprobs or all(
        abs(a[token].logprob - b[token].logprob) < TOLERANCE
        for a, b in zip(runs[1].prompt_logprobs or [], runs[3].prompt_logprobs or [], strict=True)
        if a is not None and b is not None
        for token in a
    )


def test_a_batch_of_all_lengths(engine: Engine, tiny: tuple[torch.nn.Module, str]) -> None:
    prompts = [prompt_of(length) for length in LENGTHS]
    outputs = engine.generate(prompts, params(logprobs=5, prompt_logprobs=3))
    for prompt, output in zip(prompts, outputs, strict=True):
        check(output, tiny[0], prompt)


def test_the_real_model(real: RealModel) -> None:
    settings = {
        "model": {"name": MODEL, "max_model_len": 512, "dtype": "float32"},
        "cache": {"num_blocks": 128},
        "stats": {"loggers": []},
    }
    with framework.launch(settings) as engine:
        outputs = engine.generate(real.prompts[:6], params(logprobs=5, prompt_logprobs=3))
    for prompt, output in zip(real.prompts[:6], outputs, strict=True):
        check(output, real.model, prompt)
