"""What the command says is what an engine does, with tiny random models and the worker `cpu`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import framework
import pytest
from hookspecs import EngineHooks, PluginInfo, hookimpl
from hookspecs.events import EngineStarted

from kv_plan.model_shape import read_model_shape
from kv_plan.plan import Budget, make_plan

COMMON: dict[str, Any] = {
    "vocab_size": 128,
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 4096,
}
MODELS: dict[str, dict[str, Any]] = {
    "llama": {"num_hidden_layers": 3},
    "qwen3": {"num_hidden_layers": 2, "head_dim": 24},
    "mistral": {"num_hidden_layers": 2, "sliding_window": 40},
    "gemma3_text": {"num_hidden_layers": 7, "head_dim": 16, "sliding_window": 24},
    "gpt2": {"n_positions": 4096, "n_embd": 32, "n_layer": 2, "n_head": 2},
}


class Started(EngineHooks):
    """Notes how the engine started."""

    PLUGIN = PluginInfo(name="started", api=">=1.0,<2")
    event: EngineStarted

    @hookimpl
    def on_engine_started(self, event: EngineStarted) -> None:
        """An engine core is ready."""
        self.event = event


@pytest.mark.parametrize("kv_bytes", [60_000, 300_001])
@pytest.mark.parametrize("kind", MODELS)
def test_blocks_and_the_longest_request(kind: str, kv_bytes: int, tmp_path: Path) -> None:
    from transformers import AutoConfig, AutoModelForCausalLM

    overrides = MODELS[kind]
    if kind == "gpt2":
        settings = AutoConfig.for_model(kind, vocab_size=128, **overrides)
    else:
        settings = AutoConfig.for_model(kind, **{**COMMON, **overrides})
    AutoModelForCausalLM.from_config(settings).save_pretrained(tmp_path)
    started, step = Started(), 64
    config = {
        "model": {"name": str(tmp_path), "tokenizer": "none", "dtype": "float32"},
        "executor": {"worker": "cpu", "threads": 1},
        "cache": {"kv_bytes": kv_bytes, "block_size": 8},
        "scheduler": {"max_num_batched_tokens": step},
        "stats": {"loggers": []},
    }
    with framework.launch(config, plugins=[started]):
        pass
    budget = Budget(
        kv_bytes=kv_bytes,
        num_blocks=None,
        dtype="float32",
        tensor_parallel_size=1,
        block_size=8,
        max_num_batched_tokens=step,
        lengths=(),
    )
    plan = make_plan("m", read_model_shape(str(tmp_path)), budget)
    assert plan.num_blocks == started.event.num_blocks
    longest = plan.max_model_len if plan.max_request_tokens is None else plan.max_request_tokens
    assert started.event.max_model_len == min(longest, plan.max_model_len)
