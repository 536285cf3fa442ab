"""A Llama of a few thousand random weights, for workers that need a model with files.

The weights come from a fixed generator, and are the same on every machine. Logits lie far apart, so
that the order of a sum does not decide a token.
"""

from __future__ import annotations

import functools
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "EMBEDDING",
    "HEAD",
    "is_tiny_model",
    "tiny_model",
    "tiny_model_settings",
    "tiny_weights",
]

EMBEDDING: Final = "model.embed_tokens.weight"
"""float32[vocab, hidden size]"""
HEAD: Final = "lm_head.weight"
"""float32[vocab, hidden size]"""
_VOCAB, _HIDDEN, _INNER, _HEADS, _KV_HEADS, _LAYERS = 199, 32, 48, 4, 2, 2
_HEAD_SIZE = _HIDDEN // _HEADS
_WINDOW = 7
_CONFIG: Final[Mapping[str, Any]] = {
    "vocab_size": _VOCAB,
    "hidden_size": _HIDDEN,
    "intermediate_size": _INNER,
    "num_hidden_layers": _LAYERS,
    "num_attention_heads": _HEADS,
    "num_key_value_heads": _KV_HEADS,
    "head_dim": _HEAD_SIZE,
    "hidden_act": "silu",
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "dtype": "float32",
}
_FAMILIES: Final[Mapping[bool, Mapping[str, Any]]] = {
    False: {"model_type": "llama", "architectures": ["LlamaForCausalLM"]},
    True: {
        "model_type": "mistral",
        "architectures": ["MistralForCausalLM"],
        "sliding_window": _WINDOW,
    },
}
_directories: list[tempfile.TemporaryDirectory[str]] = []
"""Kept to the end of the program, which removes them."""


@functools.cache
def tiny_model(*, sliding: bool = False) -> str:
    """The directory of the model, written at the first call. `sliding`: a Mistral, which is the
    same but that its layers attend to a window of 7 tokens."""
    from safetensors.numpy import save_file

    _directories.append(tempfile.TemporaryDirectory(prefix="conformance-model-"))
    directory = Path(_directories[-1].name)
    config = {**_CONFIG, **_FAMILIES[sliding]}
    (directory / "config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")
    save_file(tiny_weights(), directory / "model.safetensors", metadata={"format": "pt"})
    return str(directory)


def tiny_model_settings(*, sliding: bool = False) -> dict[str, Any]:
    """Sections of the configuration with which a worker runs it."""
    return {
        "model": {
            "name": tiny_model(sliding=sliding),
            "tokenizer": "none",
            "dtype": "float32",
        },
        "executor": {"threads": 1},
    }


def is_tiny_model(path: str | None) -> bool:
    """Whether a directory is the one of `tiny_model`."""
    return path is not None and path in {directory.name for directory in _directories}


def tiny_weights() -> dict[str, NDArray[np.float32]]:
    """Name to tensor, as in the checkpoint."""
    # RandomState: its stream of numbers is frozen, that of newer generators is not.
    random = np.random.RandomState(20)
    shapes: dict[str, tuple[int, ...]] = {EMBEDDING: (_VOCAB, _HIDDEN)}
    for layer in range(_LAYERS):
        name = f"model.layers.{layer}"
        shapes |= {
            f"{name}.input_layernorm.weight": (_HIDDEN,),
            f"{name}.self_attn.q_proj.weight": (_HEADS * _HEAD_SIZE, _HIDDEN),
            f"{name}.self_attn.k_proj.weight": (_KV_HEADS * _HEAD_SIZE, _HIDDEN),
            f"{name}.self_attn.v_proj.weight": (_KV_HEADS * _HEAD_SIZE, _HIDDEN),
            f"{name}.self_attn.o_proj.weight": (_HIDDEN, _HEADS * _HEAD_SIZE),
            f"{name}.post_attention_layernorm.weight": (_HIDDEN,),
            f"{name}.mlp.gate_proj.weight": (_INNER, _HIDDEN),
            f"{name}.mlp.up_proj.weight": (_INNER, _HIDDEN),
            f"{name}.mlp.down_proj.weight": (_HIDDEN, _INNER),
        }
    shapes |= {"model.norm.weight": (_HIDDEN,), HEAD: (_VOCAB, _HIDDEN)}
    return {name: _tensor(random, shape) for name, shape in shapes.items()}


def _tensor(random: np.random.RandomState, shape: tuple[int, ...]) -> NDArray[np.float32]:
    if len(shape) == 1:
        return np.ones(shape, np.float32)
    scale = 2.0 / np.sqrt(shape[1])
    tensor: NDArray[np.float32] = (random.standard_normal(shape) * scale).astype(np.float32)
    return tensor
