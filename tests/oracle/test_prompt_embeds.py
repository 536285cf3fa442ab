"""Prompts given as embeddings: the same tokens as from the ids they embed."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

import framework
from framework import SamplingParams
from framework.launcher import Engine

PARAMS = SamplingParams(temperature=0, max_tokens=6, detokenize=False, ignore_eos=True)


@pytest.fixture(scope="module")
def model_and_engine(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[torch.nn.Module, Engine]]:
    torch.manual_seed(3)
    settings = AutoConfig.for_model(
        "llama",
        vocab_size=160,
        hidden_size=48,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
        eos_token_id=None,
    )
    model = AutoModelForCausalLM.from_config(settings).float().eval()
    folder = tmp_path_factory.mktemp("embeds")
    model.save_pretrained(folder)
    with framework.launch(
        {
            "model": {"name": str(folder), "tokenizer": "none", "dtype": "float32"},
            "cache": {"num_blocks": 64, "block_size": 4},
            "scheduler": {"long_prefill_token_threshold": 7},
            "executor": {"threads": 1},
            "stats": {"loggers": []},
        }
    ) as engine:
        yield model, engine


@torch.inference_mode()
def embeds_of(model: torch.nn.Module, ids: list[int]) -> np.ndarray:
    array: np.ndarray = model.get_input_embeddings()(torch.tensor(ids)).numpy()
    return array


def test_equal_tokens_cold_cached_and_beside_ids(
    model_and_engine: tuple[torch.nn.Module, Engine],
) -> None:
    model, engine = model_and_engine
    prompts = [[3 + i, 50, 70 + i, 9, 11, 13, 15, 17, 19, 21, 23] for i in range(3)]
    expected = [o.outputs[0].token_ids for o in engine.generate(prompts, PARAMS)]
    given = [{"prompt_embeds": embeds_of(model, ids)} for ids in prompts]
    cold = engine.generate([*given, prompts[0]], PARAMS)
    assert [o.outputs[0].token_ids for o in cold] == [*expected, expected[0]]
    # Filler ids of embeddings never hit blocks of real ids, or of other embeddings.
    assert [o.num_cached_tokens for o in cold] == [0, 0, 0, 8]
    warm = engine.generate(given, PARAMS)
    assert [o.outputs[0].token_ids for o in warm] == expected
    assert [o.num_cached_tokens for o in warm] == [8, 8, 8]
