"""A directory in Hugging Face layout to a model whose weights are packed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch

from builtin_plugins.model_native.architecture import Architecture, read_architecture
from builtin_plugins.model_native.checkpoint import BASE_PREFIX, Checkpoint
from builtin_plugins.model_native.formats import GGUF
from builtin_plugins.model_native.gguf_tensors import GgufTensors
from builtin_plugins.model_native.library import kernels
from builtin_plugins.model_native.model import NativeModel
from builtin_plugins.model_native.weights import EMBEDDING, HEAD, Weights
from hookspecs.errors import UnsupportedModelError

__all__ = ["read_model"]

_TOGETHER = 8
"""Tensors that are read before their files are closed: they take memory so long."""


def read_model(
    path: Path, quantization: str | None, progress: Callable[[str, float], None]
) -> NativeModel:
    """UnsupportedModelError for files that are incomplete or do not fit."""
    architecture = read_architecture(path)
    checkpoint = Checkpoint(path)
    _check_layers(path, architecture, checkpoint)
    tied = _is_tied(architecture, checkpoint)
    gguf = GgufTensors(path) if quantization == GGUF else None
    weights = Weights(kernels(), architecture, quantization, gguf, tied=tied)
    sources = _sources(path, architecture, checkpoint, weights, tied)
    names = list(sources)
    progress("loading weights", 0.0)
    for begin in range(0, len(names), _TOGETHER):
        for name, tensor in checkpoint.tensors(names[begin : begin + _TOGETHER]):
            _write(weights, sources[name], name, tensor, gguf)
        progress("loading weights", min(1.0, (begin + _TOGETHER) / len(names)))
    unused = checkpoint.names - sources.keys() - ({HEAD} if tied else set())
    return NativeModel(kernels(), architecture, weights, unused)


def _check_layers(path: Path, architecture: Architecture, checkpoint: Checkpoint) -> None:
    """Before memory is taken for each layer that the configuration claims."""
    last = f"{BASE_PREFIX}layers.{architecture.layers - 1}."
    if not any(name.startswith(last) for name in checkpoint.names):
        raise UnsupportedModelError(
            f"the checkpoint in {str(path)!r} has no weights of layer {architecture.layers - 1}, "
            f"but its configuration has {architecture.layers} layers. It is incomplete; download "
            "the model again."
        )


def _is_tied(architecture: Architecture, checkpoint: Checkpoint) -> bool:
    """Whether head and embedding are one. A checkpoint with both of them, whose values differ,
    outweighs its configuration, as it does for transformers."""
    if not architecture.tied or not {EMBEDDING, HEAD} <= checkpoint.names:
        return architecture.tied
    (_, first), (_, second) = checkpoint.tensors([EMBEDDING, HEAD])
    return torch.equal(first, second)


def _sources(
    path: Path, architecture: Architecture, checkpoint: Checkpoint, weights: Weights, tied: bool
) -> dict[str, str]:
    """Name in the checkpoint to name of the parameter, of all parameters."""
    sources = {name: name for name in weights.parameters}
    if tied and EMBEDDING not in checkpoint.names and HEAD in checkpoint.names:
        del sources[EMBEDDING]
        sources[HEAD] = EMBEDDING
    missing = sorted(sources.keys() - checkpoint.names)
    if missing:
        raise UnsupportedModelError(
            f"the checkpoint in {str(path)!r} lacks {len(missing)} weights that "
            f"{architecture.name} needs, for example {missing[0]!r}. It is incomplete, or of a "
            "model with another head; use a causal language model's checkpoint."
        )
    return sources


def _write(
    weights: Weights, target: str, name: str, tensor: torch.Tensor, gguf: GgufTensors | None
) -> None:
    parameter = weights.parameters[target]
    if not tensor.dtype.is_floating_point or tensor.shape != parameter.shape:
        raise UnsupportedModelError(
            f"the checkpoint's {name!r} is {tensor.dtype} {tuple(tensor.shape)}; needed is a "
            f"floating-point type and {tuple(parameter.shape)}, as its configuration says"
        )
    if gguf is not None and parameter.write_groups is not None:
        groups = gguf.groups(name)
        if groups is not None:
            if groups.codes.shape != parameter.shape:
                raise UnsupportedModelError(
                    f"the record of the GGUF file has {groups.codes.shape} for {name!r}; needed "
                    f"is {tuple(parameter.shape)}. Remove the directory of the converted model, "
                    "and it is converted again."
                )
            parameter.write_groups(groups)
            return
    parameter.write(tensor)
