"""Tiny models with random weights: sizes that fit neither vectors nor panels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from builtin_plugins.model_native.loader import NativeLoader
from builtin_plugins.model_native.model import NativeModel
from hookspecs.config import EngineConfig, ModelConfig
from hookspecs.contracts.model import ModelLoaderContext, ResolvedModel

_ROPE: dict[str, Any] = {
    "rope_theta": 1e4,
    "factor": 4.0,
    "original_max_position_embeddings": 32,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
}
_ODD: dict[str, Any] = {"hidden_size": 40, "intermediate_size": 51, "num_hidden_layers": 3}

FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {"model_type": "llama", "tie_word_embeddings": False, **_ODD},
    "llama_tied": {"model_type": "llama", "tie_word_embeddings": True, "head_dim": 22},
    "llama_biases": {"model_type": "llama", "attention_bias": True, "mlp_bias": True},
    "llama_one_kv_head": {"model_type": "llama", "num_key_value_heads": 1, **_ODD},
    "llama3": {"model_type": "llama", "rope_parameters": {"rope_type": "llama3", **_ROPE}},
    "llama_linear": {"model_type": "llama", "rope_parameters": {"rope_type": "linear", **_ROPE}},
    "llama_yarn": {"model_type": "llama", "rope_parameters": {"rope_type": "yarn", **_ROPE}},
    "mistral": {"model_type": "mistral", "sliding_window": 7, "head_dim": 10},
    "mistral_full": {"model_type": "mistral", "sliding_window": None},
    "qwen2": {"model_type": "qwen2", **_ODD},
    "qwen2_windows": {
        "model_type": "qwen2",
        "use_sliding_window": True,
        "sliding_window": 7,
        "max_window_layers": 1,
        "tie_word_embeddings": True,
    },
    "qwen3": {"model_type": "qwen3", "head_dim": 18, "attention_bias": True, **_ODD},
}


def load(model: ResolvedModel, quantization: str | None = None) -> NativeModel:
    """With the loader `native`."""
    config = EngineConfig(model=ModelConfig(name=model.name, quantization=quantization))
    return NativeLoader(ModelLoaderContext(config=config)).load(
        model, dtype="float32", device="cpu"
    )


def directory(model: ResolvedModel) -> Path:
    """Of its files."""
    return Path(str(model.path))


class WholeRows:
    """Causal attention over the rows of one forward, without a cache."""

    def __init__(self, lengths: list[int]) -> None:
        self._lengths = lengths

    def __call__(
        self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, **how: Any
    ) -> torch.Tensor:
        rows = zip(*(torch.split(x, self._lengths) for x in (query, key, value)), strict=True)
        return torch.cat([self._row(*row, how["scale"], how["sliding_window"]) for row in rows])

    def _row(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, window: int | None
    ) -> torch.Tensor:
        groups = q.shape[1] // k.shape[1]
        seen = torch.ones(len(q), len(q), dtype=torch.bool).tril()
        if window is not None:
            seen = seen.triu(1 - window)
        return torch.nn.functional.scaled_dot_product_attention(
            q.transpose(0, 1),
            k.transpose(0, 1).repeat_interleave(groups, 0),
            v.transpose(0, 1).repeat_interleave(groups, 0),
            attn_mask=seen,
            scale=scale,
        ).transpose(0, 1)
