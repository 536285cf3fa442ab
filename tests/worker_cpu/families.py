"""Tiny models with random weights, saved as checkpoints, one of each kind of architecture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from hookspecs.contracts.model import ModelInfo, ResolvedModel

VOCAB = 199
_BASE: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_GPT2: dict[str, Any] = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 128}
_GEMMA: dict[str, Any] = {"head_dim": 16, "query_pre_attn_scalar": 16, "sliding_window": 7}

FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {"model_type": "llama", "tie_word_embeddings": True},
    "llama_mqa": {"model_type": "llama", "num_key_value_heads": 1},
    "qwen2": {"model_type": "qwen2"},
    "qwen3": {"model_type": "qwen3", "head_dim": 16},
    "mistral": {"model_type": "mistral", "sliding_window": 7},
    "gemma2": {
        "model_type": "gemma2",
        **_GEMMA,
        "attn_logit_softcapping": 2.0,
        "final_logit_softcapping": 3.0,
    },
    "gemma3": {"model_type": "gemma3_text", **_GEMMA, "num_hidden_layers": 6},
    "phi": {"model_type": "phi"},
    "gpt2": {"model_type": "gpt2", **_GPT2, "scale_attn_by_inverse_layer_idx": True},
    "gpt_neox": {"model_type": "gpt_neox"},
    "opt": {"model_type": "opt", "ffn_dim": 48, "word_embed_proj_dim": 32},
    "stablelm": {"model_type": "stablelm"},
    "gpt_oss": {
        "model_type": "gpt_oss",
        "head_dim": 8,
        "sliding_window": 7,
        "num_local_experts": 2,
        "num_experts_per_tok": 1,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e4},
    },
}


def save_model(directory: Path, *, seed: int = 0, **fields: Any) -> ResolvedModel:
    """A model of `fields` over the common ones, saved in `directory`."""
    torch.manual_seed(seed)
    config = AutoConfig.for_model(**{**_BASE, **fields})
    module = AutoModelForCausalLM.from_config(
        config, dtype=torch.float32, attn_implementation="eager"
    )
    with torch.no_grad():
        for parameter in module.parameters():  # no zero biases, and logits that differ
            parameter.add_(torch.randn_like(parameter) * 0.08)
    module.save_pretrained(directory)
    return resolved(directory)


def resolved(directory: Path) -> ResolvedModel:
    """What a model source would say of a saved model."""
    config = AutoConfig.from_pretrained(directory).get_text_config(decoder=True)
    info = ModelInfo(
        architecture=(config.architectures or ["?"])[0],
        vocab_size=config.vocab_size,
        max_model_len=getattr(config, "max_position_embeddings", 128),
        hidden_size=config.hidden_size,
    )
    return ResolvedModel(name=str(directory), path=str(directory), tokenizer_path=None, info=info)


class Reference:
    """The same checkpoint in plain transformers."""

    def __init__(self, model: ResolvedModel) -> None:
        # Eager attention: the other ones ignore a soft cap.
        self.module = AutoModelForCausalLM.from_pretrained(
            model.path, dtype=torch.float32, attn_implementation="eager"
        ).eval()

    def greedy(self, prompt: list[int], count: int) -> list[int]:
        """`count` tokens after `prompt`."""
        with torch.inference_mode():
            output = self.module.generate(
                torch.tensor([prompt]),
                attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
                do_sample=False,
                max_new_tokens=count,
                min_new_tokens=count,
                eos_token_id=None,
                pad_token_id=0,
            )
        tokens: list[int] = output[0, len(prompt) :].tolist()
        return tokens

    def logprobs(self, tokens: list[int]) -> torch.Tensor:
        """float32 [tokens, vocab]"""
        with torch.inference_mode():
            logits = self.module(torch.tensor([tokens]), use_cache=False).logits[0]
        return torch.log_softmax(logits.float(), -1)

    def embeds(self, tokens: list[int]) -> torch.Tensor:
        """float32 [tokens, hidden size]"""
        with torch.inference_mode():
            embedded: torch.Tensor = self.module.get_input_embeddings()(torch.tensor(tokens))
        return embedded
