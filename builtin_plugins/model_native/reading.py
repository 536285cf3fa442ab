"""A directory in Hugging Face layout to a model whose weights are packed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch

from builtin_plugins.model_native.architecture import Architecture, read_architecture
from builtin_plugins.model_native.checkpoint import Checkpoint
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
    tied = _is_tied(architecture, checkpoint)
    gguf = GgufTensors(path) if quantization == GGUF else None
    sources: dict[str, str] = {}
    """Name in the checkpoint to name of the parameter."""

    def expect(parameter: str, shape: torch.Size) -> None:
        name = parameter
        if tied and parameter == EMBEDDING and EMBEDDING not in checkpoint.names:
            name = HEAD
        _check_shape(path, architecture, checkpoint, name, shape)
        sources[name] = parameter

    weights = Weights(kernels(), architecture, quantization, gguf, expect, tied=tied)
    names = list(sources)
    progress("loading weights", 0.0)
    for begin in range(0, len(names), _TOGETHER):
        for name, tensor in checkpoint.tensors(names[begin : begin + _TOGETHER]):
            _write(weights, sources[name], name, tensor, gguf)
        progress("loading weights", min(1.0, (begin + _TOGETHER) / len(names)))
    unused = checkpoint.names - sources.keys() - ({HEAD} if tied else set())
    return NativeModel(kernels(), architecture, weights, unused)


def _is_tied(architecture: Architecture, checkpoint: Checkpoint) -> bool:
    """Whether head and embedding are one. A checkpoint with both of them, whose values differ,
    outweighs its configuration, as it does for transformers."""
    if not architecture.tied or not {EMBEDDING, HEAD} <= checkpoint.names:
        return architecture.tied
    (_, first), (_, second) = checkpoint.tensors([EMBEDDING, HEAD])
    return torch.equal(first, second)


def _check_shape(
    path: Path, architecture: Architecture, checkpoint: Checkpoint, name: str, shape: torch.Size
) -> None:
    found = checkpoint.shapes.get(name)
    if found is None:
        raise UnsupportedModelError(
            f"the checkpoint in {str(path)!r} lacks the weight {name!r} that "
            f"{architecture.name} with {architecture.layers} layers needs. It is incomplete, or of "
            "a model with another head; use a causal language model's checkpoint."
        )
    if found != shape:
        raise UnsupportedModelError(
            f"the checkpoint in {str(path)!r} has {name!r} of shape {tuple(found)}; needed is "
            f"{tuple(shape)}, as the sizes in its config.json say. Correct that file or download "
            "the model again."
        )


def _write(
    weights: Weights, target: str, name: str, tensor: torch.Tensor, gguf: GgufTensors | None
) -> None:
    parameter = weights.parameters[target]
    if not tensor.dtype.is_floating_point or tensor.shape != parameter.shape:
        # The file may have changed since its shapes were read.
        raise UnsupportedModelError(
            f"the checkpoint's {name!r} is {tensor.dtype} {tuple(tensor.shape)}; needed is a "
            f"floating-point type and {tuple(parameter.shape)}. Use a checkpoint that is not "
            "quantized."
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
