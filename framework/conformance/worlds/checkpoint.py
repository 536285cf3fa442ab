"""Checkpoints of models in the layout of Hugging Face, and what is in them."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import save_file

from framework.conformance.worlds.tiny_model import tiny_model, tiny_weights
from hookspecs.contracts.model import ModelInfo, ResolvedModel

__all__ = ["Checkpoint", "other_weights", "tiny_checkpoint", "write_checkpoint"]


class Checkpoint(NamedTuple):
    """A model whose files the kit has written."""

    path: Path
    """A directory with config.json and model.safetensors; no tokenizer."""
    config: dict[str, Any]
    weights: dict[str, torch.Tensor]
    """float32, by their names in the file."""

    def resolved(self) -> ResolvedModel:
        """As a model source gives it."""
        info = ModelInfo(
            architecture=self.config["architectures"][0],
            vocab_size=self.config["vocab_size"],
            max_model_len=self.config["max_position_embeddings"],
            eos_token_ids=(self.config["eos_token_id"],),
            bos_token_id=self.config["bos_token_id"],
            hidden_size=self.config["hidden_size"],
            has_tokenizer=False,
        )
        return ResolvedModel(
            name=str(self.path), path=str(self.path), tokenizer_path=None, info=info
        )


@functools.cache
def tiny_checkpoint(*, sliding: bool = False) -> Checkpoint:
    """That of `tiny_model`."""
    path = Path(tiny_model(sliding=sliding))
    config = json.loads((path / "config.json").read_text(encoding="utf-8"))
    weights = {name: torch.from_numpy(tensor) for name, tensor in tiny_weights().items()}
    return Checkpoint(path, config, weights)


def write_checkpoint(
    path: Path, config: Mapping[str, Any], weights: Mapping[str, torch.Tensor]
) -> Checkpoint:
    """A checkpoint in a directory, which is made."""
    path.mkdir(parents=True, exist_ok=True)
    (path / "config.json").write_text(json.dumps(dict(config)), encoding="utf-8")
    save_file(dict(weights), path / "model.safetensors", metadata={"format": "pt"})
    return Checkpoint(path, dict(config), dict(weights))


def other_weights(weights: Mapping[str, torch.Tensor], seed: int) -> dict[str, torch.Tensor]:
    """Tensors of the same names and shapes, all a little different."""
    generator = torch.Generator().manual_seed(seed)
    return {
        name: tensor + 0.1 * torch.randn(tensor.shape, generator=generator)
        for name, tensor in weights.items()
    }
