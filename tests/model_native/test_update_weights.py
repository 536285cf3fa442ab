"""Weights that are replaced in place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from builtin_plugins.model_native.model import NativeModel
from hookspecs.contracts.model import ResolvedModel
from hookspecs.errors import InvalidRequestError
from tests.model_native.families import FAMILIES, WholeRows, directory, load
from tests.worker_cpu.families import save_model

Checkpoint = Callable[[str], ResolvedModel]
EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"
KEY = "model.layers.1.self_attn.k_proj.weight"


def _logits(model: NativeModel) -> torch.Tensor:
    model.set_attention(WholeRows([9]))
    return model.forward(torch.arange(9) + 3, torch.arange(9), torch.arange(9))


def _weights(model: ResolvedModel) -> dict[str, torch.Tensor]:
    return load_file(directory(model) / "model.safetensors")


@pytest.mark.parametrize("family", ["llama", "llama_tied", "llama_biases", "qwen2", "qwen3"])
def test_all_and_some(family: str, checkpoint: Checkpoint, tmp_path: Path) -> None:
    other = save_model(tmp_path, seed=1, **FAMILIES[family])
    model, expected = load(checkpoint(family)), load(other)
    weights = _weights(other)
    assert model.update_weights(weights) == len(weights)
    assert torch.equal(_logits(model), _logits(expected))
    old = _weights(checkpoint(family))
    some = {name: old[name] for name in list(old)[2:5]}
    assert model.update_weights(some) == 3
    assert not torch.equal(_logits(model), _logits(expected))
    assert model.update_weights({name: weights[name].double() for name in some}) == 3
    assert torch.equal(_logits(model), _logits(expected))


def test_other_names(checkpoint: Checkpoint) -> None:
    model = load(checkpoint("llama_tied"))
    new = {KEY.removeprefix("model."): torch.zeros(44, 32), HEAD: torch.ones(199, 32)}
    assert (
        model.update_weights({**new, "layers.0.self_attn.rotary_emb.inv_freq": torch.ones(1)}) == 2
    )
    assert (model.embed(torch.tensor([3])) == 1).all()


@pytest.mark.parametrize(
    ("tensors", "reason"),
    [
        ({}, "there are no tensors"),
        ({KEY.replace("k_proj", "kk"): torch.ones(1)}, f"nearest name is '{KEY}'"),
        ({KEY: torch.ones(44, 31)}, r"shape \(44, 31\); needed is \(44, 32\)"),
        ({KEY: torch.ones(44, 32).int()}, "has dtype int32; needed is a floating-point type"),
        ({KEY: torch.ones(44, 32).to(torch.complex64)}, "has dtype complex64"),
        ({EMBEDDING: torch.ones(199, 32), HEAD: torch.zeros(199, 32)}, "are the same weight"),
    ],
)
def test_what_does_not_fit_replaces_nothing(
    tensors: dict[str, torch.Tensor], reason: str, checkpoint: Checkpoint
) -> None:
    model = load(checkpoint("llama_tied"))
    before = _logits(model)
    good = {"model.norm.weight": torch.zeros(32)} if tensors else {}
    with pytest.raises(InvalidRequestError, match=f"{reason}.*Nothing was replaced"):
        model.update_weights({**good, **tensors})
    assert torch.equal(_logits(model), before)
