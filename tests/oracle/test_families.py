"""Tiny random models of many families: the same tokens as `transformers`, on every path."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from reference import Comparison, Expected, expected_tokens
from transformers import AutoConfig, AutoModelForCausalLM

import framework
from framework import SamplingParams

COMMON: dict[str, Any] = {
    "vocab_size": 320,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "max_position_embeddings": 256,
    "bos_token_id": 1,
    "eos_token_id": None,
    "pad_token_id": 0,
}

FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama-gqa-untied": ("llama", {"num_key_value_heads": 2, "tie_word_embeddings": False}),
    "llama-mqa-tied": ("llama", {"num_key_value_heads": 1, "tie_word_embeddings": True}),
    "qwen2": ("qwen2", {"num_key_value_heads": 2}),
    "qwen3": ("qwen3", {"num_key_value_heads": 2, "head_dim": 24}),
    "mistral-sliding": ("mistral", {"num_key_value_heads": 2, "sliding_window": 12}),
    "gemma2-softcap-hybrid": (
        "gemma2",
        {
            "num_key_value_heads": 2,
            "head_dim": 16,
            "sliding_window": 12,
            "attn_logit_softcapping": 5.0,
            "final_logit_softcapping": 10.0,
            "query_pre_attn_scalar": 16,
        },
    ),
    "gemma3-hybrid": (
        "gemma3_text",
        {
            "num_key_value_heads": 1,
            "head_dim": 16,
            "sliding_window": 12,
            "num_hidden_layers": 6,
            "query_pre_attn_scalar": 16,
        },
    ),
    "phi": ("phi", {}),
    "phi3": ("phi3", {"num_key_value_heads": 2}),
    "smollm3": ("smollm3", {"num_key_value_heads": 2}),
    "gpt-neox": ("gpt_neox", {}),
    "gpt2": ("gpt2", {"n_positions": 256, "n_embd": 64, "n_layer": 3, "n_head": 4}),
}

PATHS: dict[str, dict[str, Any]] = {
    "batched-sdpa": {"executor": {"attention": "sdpa"}},
    "batched-paged": {"executor": {"attention": "cpu_paged"}},
    "chunked": {"scheduler": {"long_prefill_token_threshold": 5}},
    "tiny-cache": {
        "cache": {"enable_prefix_caching": False},
        "scheduler": {"max_num_batched_tokens": 16},
    },
}
TINY_CACHE = {"gemma2-softcap-hybrid": 44, "gemma3-hybrid": 84}
"""Blocks with which the longest request just fits: one group needs 28, windows 8 a group."""
NEW_TOKENS = 12


class Family:
    """A saved model and the reference's continuations."""

    def __init__(self, name: str, folder: Path) -> None:
        kind, overrides = FAMILIES[name]
        settings = AutoConfig.for_model(kind, **{**COMMON, **overrides})
        torch.manual_seed(sum(map(ord, name)))
        implementation = "eager" if "softcap" in name else "sdpa"
        model = AutoModelForCausalLM.from_config(settings, attn_implementation=implementation)
        with torch.no_grad():
            for parameter in model.parameters():
                # Wider than the usual start, so that the best logits are clearly apart.
                if parameter.dim() > 1:
                    parameter.mul_(3)
        model = model.float().eval()
        model.save_pretrained(folder)
        self.path = str(folder)
        self.tiny_cache = TINY_CACHE.get(name, 34)
        generator = torch.Generator().manual_seed(1)
        self.prompts = [
            torch.randint(2, 320, (length,), generator=generator).tolist()
            for length in (1, 3, 4, 5, 11, 12, 13, 31, 32, 33, 100)
        ]
        self.expected: list[Expected] = [
            expected_tokens(model, prompt, NEW_TOKENS) for prompt in self.prompts
        ]


@pytest.fixture(scope="module", params=FAMILIES)
def family(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Family:
    return Family(request.param, tmp_path_factory.mktemp(request.param))


@pytest.mark.parametrize("path", PATHS)
def test_tokens(family: Family, path: str) -> None:
    settings: dict[str, Any] = {
        "model": {"name": family.path, "tokenizer": "none", "dtype": "float32"},
        "cache": {"num_blocks": 256, "block_size": 4},
        "stats": {"loggers": []},
        "engine": {"debug": True},
        "executor": {"threads": 1},
    }
    for section, values in PATHS[path].items():
        settings[section] = {**settings.get(section, {}), **values}
    if path == "tiny-cache":
        settings["cache"]["num_blocks"] = family.tiny_cache
    params = SamplingParams(temperature=0, max_tokens=NEW_TOKENS, detokenize=False, ignore_eos=True)
    comparison = Comparison()
    with framework.launch(settings) as engine:
        runs = [engine.generate(family.prompts, params)]
        if path != "tiny-cache":
            runs.append(engine.generate(family.prompts, params))
    for run in runs:
        for index, (expected, output) in enumerate(zip(family.expected, run, strict=True)):
            comparison.check(f"prompt {index}", expected, output.outputs[0].token_ids)
    comparison.report(path)
