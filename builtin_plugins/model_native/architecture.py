"""What the kernels need to know of a model, from its configuration."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from builtin_plugins.model_native.config_values import check_values
from builtin_plugins.model_native.support import read_config
from hookspecs.errors import UnsupportedModelError

__all__ = ["Architecture", "read_architecture"]

_MOST_HEAD_SIZE = 2**16


@dataclass(frozen=True)
class Architecture:
    """A decoder of the Llama family."""

    name: str
    vocab_size: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_size: int
    inner: int
    """Width of the gated activation."""
    eps: float
    """Of all norms."""
    qkv_bias: bool
    out_bias: bool
    mlp_bias: bool
    head_norms: bool
    """Whether each head of query and key is normed."""
    tied: bool
    """Whether the head's weights are the embedding's, as the configuration says."""
    windows: tuple[int | None, ...]
    """Of each layer: tokens that a token attends to, itself included; None: all."""
    frequencies: torch.Tensor
    """float32 [head size / 2]: radians a position that each pair of elements is turned by."""
    rope_scale: float
    """Factor of the cosines and sines."""

    @property
    def qkv_parts(self) -> tuple[int, int, int]:
        """Output features of query, key and value."""
        kv = self.kv_heads * self.head_size
        return self.heads * self.head_size, kv, kv


def read_architecture(path: Path) -> Architecture:
    """Of a directory that `check_support` has passed. UnsupportedModelError."""
    check_values(read_config(path), path / "config.json")
    try:
        config: Any = AutoConfig.from_pretrained(path, local_files_only=True)
    except Exception as error:
        raise _unreadable(path, error) from error
    kind: str = config.model_type
    head_size = getattr(config, "head_dim", None) or (
        config.hidden_size // config.num_attention_heads
    )
    wrong_size = not (2 <= head_size <= _MOST_HEAD_SIZE) or head_size % 2
    if config.num_attention_heads % config.num_key_value_heads or wrong_size:
        raise UnsupportedModelError(
            f"the configuration in {str(path)!r} has {config.num_attention_heads} heads of size "
            f"{head_size} and {config.num_key_value_heads} kv heads; heads must be a multiple of "
            f"kv heads, and their size even, from 2 to {_MOST_HEAD_SIZE}"
        )
    attention_bias = bool(getattr(config, "attention_bias", False)) and kind != "mistral"
    try:
        frequencies, rope_scale = _rope(config, head_size)
    except Exception as error:
        raise _unreadable(path, error) from error
    if not (torch.isfinite(frequencies).all() and math.isfinite(rope_scale)):
        raise UnsupportedModelError(
            f"the configuration in {str(path)!r} has rope_parameters {config.rope_parameters!r}, "
            "whose angles are no finite numbers. Correct the file or download the model again."
        )
    if 2 * len(frequencies) != head_size:
        raise UnsupportedModelError(
            f"the configuration in {str(path)!r} turns {2 * len(frequencies)} elements of each "
            f"head of {head_size}; all of them must be turned"
        )
    windows = _windows(config, kind)
    if len(windows) != config.num_hidden_layers:
        raise UnsupportedModelError(
            f"the configuration in {str(path)!r} has {len(windows)} layer_types for "
            f"{config.num_hidden_layers} layers; it must have one for each. Correct the file or "
            "download the model again."
        )
    return Architecture(
        name=config.architectures[0],
        vocab_size=config.vocab_size,
        hidden=config.hidden_size,
        layers=config.num_hidden_layers,
        heads=config.num_attention_heads,
        kv_heads=config.num_key_value_heads,
        head_size=head_size,
        inner=config.intermediate_size,
        eps=config.rms_norm_eps,
        qkv_bias=kind == "qwen2" or attention_bias,
        out_bias=kind != "qwen2" and attention_bias,
        mlp_bias=kind == "llama" and config.mlp_bias,
        head_norms=kind == "qwen3",
        tied=bool(config.tie_word_embeddings),
        windows=windows,
        frequencies=frequencies,
        rope_scale=rope_scale,
    )


def _unreadable(path: Path, error: Exception) -> UnsupportedModelError:
    said = " ".join(str(error).split()).rstrip(".")
    return UnsupportedModelError(
        f"the configuration in {str(path)!r} can not be read: {type(error).__name__}: {said}. "
        "Correct the file or download the model again."
    )


def _windows(config: Any, kind: str) -> tuple[int | None, ...]:
    layers: int = config.num_hidden_layers
    if kind == "llama":
        return (None,) * layers
    window: int | None = config.sliding_window
    if kind == "mistral":
        return (window,) * layers
    return tuple(window if layer == "sliding_attention" else None for layer in config.layer_types)


def _rope(config: Any, head_size: int) -> tuple[torch.Tensor, float]:
    """Frequencies and the factor of cosines and sines, as transformers has them."""
    rope = config.rope_parameters
    if rope["rope_type"] != "default":
        frequencies, scale = ROPE_INIT_FUNCTIONS[rope["rope_type"]](config)
        return frequencies.float().contiguous(), float(scale)
    exponents = torch.arange(0, head_size, 2, dtype=torch.float32) / head_size
    return 1.0 / (rope["rope_theta"] ** exponents), 1.0
