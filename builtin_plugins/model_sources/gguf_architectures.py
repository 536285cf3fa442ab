"""The GGUF architectures that can be converted: configuration and tensor names of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from builtin_plugins.model_sources.gguf_file import GgufFile
from builtin_plugins.model_sources.gguf_rope import rope_scaling
from hookspecs.errors import UnsupportedModelError

__all__ = ["Architecture", "Change", "TensorRule", "architecture_of"]


class Change(Enum):
    """How a tensor differs from its Hugging Face form."""

    NONE = auto()
    UNPERMUTE_QUERY = auto()
    """Rows of each head are interleaved for another way to compute rotary embeddings."""
    UNPERMUTE_KEY = auto()
    TRANSPOSE = auto()
    """The Hugging Face module keeps its weight as [in, out]."""


@dataclass(frozen=True)
class TensorRule:
    """The Hugging Face name of a tensor (`{n}` is the layer number) and the change it needs."""

    name: str
    change: Change = Change.NONE


@dataclass(frozen=True)
class Architecture:
    """One GGUF architecture. Tensor names of `layer` follow `blk.N.` in the file."""

    class_name: str
    model_type: str
    top: Mapping[str, TensorRule]
    layer: Callable[[GgufFile], Mapping[str, TensorRule]]
    config: Callable[[GgufFile], dict[str, Any]]


def architecture_of(file: GgufFile) -> Architecture:
    """Raises UnsupportedModelError, which lists the supported names, for any other."""
    name = file.require("general.architecture")
    found = _ARCHITECTURES.get(name)
    if found is None:
        raise UnsupportedModelError(
            f"GGUF file {str(file.path)!r}: its architecture {name!r} can not be converted. "
            f"Supported are {', '.join(sorted(_ARCHITECTURES))}. "
            "Use the model in Hugging Face format, or a plugin that reads this architecture."
        )
    altering = [key for key in _ALTERING_KEYS if file.get(f"{name}.{key}")]
    if altering:
        raise file.error(
            f"its variant of {name!r} can not be converted: it sets {', '.join(altering)}",
            "Use the model in Hugging Face format.",
        )
    return found


_ALTERING_KEYS = (
    "expert_count",
    "logit_scale",
    "embedding_scale",
    "residual_scale",
    "attention.scale",
    "attention.clamp_kqv",
    "attn_logit_softcapping",
    "final_logit_softcapping",
)
"""Settings that change what a model computes, and that the configurations below can not say."""

_QUERY, _KEY = Change.UNPERMUTE_QUERY, Change.UNPERMUTE_KEY

_ROTARY_TOP = {
    "token_embd.weight": TensorRule("model.embed_tokens.weight"),
    "output_norm.weight": TensorRule("model.norm.weight"),
    "output.weight": TensorRule("lm_head.weight"),
}

_ROTARY_LAYER = {
    "attn_norm.weight": TensorRule("model.layers.{n}.input_layernorm.weight"),
    "attn_q.weight": TensorRule("model.layers.{n}.self_attn.q_proj.weight"),
    "attn_k.weight": TensorRule("model.layers.{n}.self_attn.k_proj.weight"),
    "attn_v.weight": TensorRule("model.layers.{n}.self_attn.v_proj.weight"),
    "attn_output.weight": TensorRule("model.layers.{n}.self_attn.o_proj.weight"),
    "ffn_norm.weight": TensorRule("model.layers.{n}.post_attention_layernorm.weight"),
    "ffn_gate.weight": TensorRule("model.layers.{n}.mlp.gate_proj.weight"),
    "ffn_up.weight": TensorRule("model.layers.{n}.mlp.up_proj.weight"),
    "ffn_down.weight": TensorRule("model.layers.{n}.mlp.down_proj.weight"),
}

_LLAMA_LAYER = _ROTARY_LAYER | {
    "attn_q.weight": TensorRule("model.layers.{n}.self_attn.q_proj.weight", _QUERY),
    "attn_k.weight": TensorRule("model.layers.{n}.self_attn.k_proj.weight", _KEY),
}

_LLAMA_BIAS = {
    "attn_q.bias": TensorRule("model.layers.{n}.self_attn.q_proj.bias", _QUERY),
    "attn_k.bias": TensorRule("model.layers.{n}.self_attn.k_proj.bias", _KEY),
    "attn_v.bias": TensorRule("model.layers.{n}.self_attn.v_proj.bias"),
    "attn_output.bias": TensorRule("model.layers.{n}.self_attn.o_proj.bias"),
}

_QWEN2_LAYER = _ROTARY_LAYER | {
    "attn_q.bias": TensorRule("model.layers.{n}.self_attn.q_proj.bias"),
    "attn_k.bias": TensorRule("model.layers.{n}.self_attn.k_proj.bias"),
    "attn_v.bias": TensorRule("model.layers.{n}.self_attn.v_proj.bias"),
}

_QWEN3_LAYER = _ROTARY_LAYER | {
    "attn_q_norm.weight": TensorRule("model.layers.{n}.self_attn.q_norm.weight"),
    "attn_k_norm.weight": TensorRule("model.layers.{n}.self_attn.k_norm.weight"),
}

_GPT2_TOP = {
    "token_embd.weight": TensorRule("transformer.wte.weight"),
    "position_embd.weight": TensorRule("transformer.wpe.weight"),
    "output_norm.weight": TensorRule("transformer.ln_f.weight"),
    "output_norm.bias": TensorRule("transformer.ln_f.bias"),
    "output.weight": TensorRule("lm_head.weight"),
}

_GPT2_LAYER = {
    "attn_norm.weight": TensorRule("transformer.h.{n}.ln_1.weight"),
    "attn_norm.bias": TensorRule("transformer.h.{n}.ln_1.bias"),
    "attn_qkv.weight": TensorRule("transformer.h.{n}.attn.c_attn.weight", Change.TRANSPOSE),
    "attn_qkv.bias": TensorRule("transformer.h.{n}.attn.c_attn.bias"),
    "attn_output.weight": TensorRule("transformer.h.{n}.attn.c_proj.weight", Change.TRANSPOSE),
    "attn_output.bias": TensorRule("transformer.h.{n}.attn.c_proj.bias"),
    "ffn_norm.weight": TensorRule("transformer.h.{n}.ln_2.weight"),
    "ffn_norm.bias": TensorRule("transformer.h.{n}.ln_2.bias"),
    "ffn_up.weight": TensorRule("transformer.h.{n}.mlp.c_fc.weight", Change.TRANSPOSE),
    "ffn_up.bias": TensorRule("transformer.h.{n}.mlp.c_fc.bias"),
    "ffn_down.weight": TensorRule("transformer.h.{n}.mlp.c_proj.weight", Change.TRANSPOSE),
    "ffn_down.bias": TensorRule("transformer.h.{n}.mlp.c_proj.bias"),
}


def _llama_has_bias(file: GgufFile) -> bool:
    return "blk.0.attn_q.bias" in file.tensors


def _rotary_config(file: GgufFile, arch: str) -> dict[str, Any]:
    """What the decoders with RMS norm, rotary positions and grouped heads have in common."""
    heads = _head_count(file, f"{arch}.attention.head_count")
    hidden = file.count(f"{arch}.embedding_length")
    head_dim = file.count(f"{arch}.attention.key_length", hidden // heads)
    rotated = file.count(f"{arch}.rope.dimension_count", head_dim)
    value_dim = file.count(f"{arch}.attention.value_length", head_dim)
    if not rotated == value_dim == head_dim:
        raise file.error(
            f"heads whose sizes differ are not supported: key {head_dim}, rotated part {rotated}, "
            f"value {value_dim}",
            "Use the model in Hugging Face format.",
        )
    theta = file.get(f"{arch}.rope.freq_base") or 10000.0
    return {
        "hidden_size": hidden,
        "intermediate_size": file.count(f"{arch}.feed_forward_length"),
        "num_hidden_layers": file.count(f"{arch}.block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": (
            _head_count(file, f"{arch}.attention.head_count_kv")
            if file.get(f"{arch}.attention.head_count_kv") is not None
            else heads
        ),
        "head_dim": head_dim,
        "max_position_embeddings": file.count(f"{arch}.context_length"),
        "rms_norm_eps": file.require(f"{arch}.attention.layer_norm_rms_epsilon"),
        "rope_theta": theta,
        "rope_scaling": rope_scaling(file, arch, head_dim, theta),
        "hidden_act": "silu",
    }


def _head_count(file: GgufFile, key: str) -> int:
    value = file.get(key)
    if not isinstance(value, list):
        return file.count(key)
    if len(set(value)) != 1:
        raise file.error(
            f"layers with different numbers of heads are not supported ({key} = {value})",
            "Use the model in Hugging Face format.",
        )
    return int(value[0])


def _llama_config(file: GgufFile) -> dict[str, Any]:
    bias = _llama_has_bias(file)
    return {**_rotary_config(file, "llama"), "attention_bias": bias, "mlp_bias": False}


def _qwen2_config(file: GgufFile) -> dict[str, Any]:
    return {**_rotary_config(file, "qwen2"), "use_sliding_window": False}


def _qwen3_config(file: GgufFile) -> dict[str, Any]:
    own = {"attention_bias": False, "use_sliding_window": False}
    return {**_rotary_config(file, "qwen3"), **own}


def _gpt2_config(file: GgufFile) -> dict[str, Any]:
    return {
        "n_embd": file.count("gpt2.embedding_length"),
        "n_head": _head_count(file, "gpt2.attention.head_count"),
        "n_inner": file.count("gpt2.feed_forward_length"),
        "n_layer": file.count("gpt2.block_count"),
        "n_positions": file.count("gpt2.context_length"),
        "layer_norm_epsilon": file.require("gpt2.attention.layer_norm_epsilon"),
        "activation_function": "gelu_new",
    }


_ARCHITECTURES = {
    "llama": Architecture(
        class_name="LlamaForCausalLM",
        model_type="llama",
        top=_ROTARY_TOP,
        layer=lambda file: _LLAMA_LAYER | (_LLAMA_BIAS if _llama_has_bias(file) else {}),
        config=_llama_config,
    ),
    "qwen2": Architecture(
        class_name="Qwen2ForCausalLM",
        model_type="qwen2",
        top=_ROTARY_TOP,
        layer=lambda file: _QWEN2_LAYER,
        config=_qwen2_config,
    ),
    "qwen3": Architecture(
        class_name="Qwen3ForCausalLM",
        model_type="qwen3",
        top=_ROTARY_TOP,
        layer=lambda file: _QWEN3_LAYER,
        config=_qwen3_config,
    ),
    "gpt2": Architecture(
        class_name="GPT2LMHeadModel",
        model_type="gpt2",
        top=_GPT2_TOP,
        layer=lambda file: _GPT2_LAYER,
        config=_gpt2_config,
    ),
}
