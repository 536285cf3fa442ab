"""Replaces weights of a loaded model, in place."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping

import torch

from builtin_plugins.model_native.checkpoint import BASE_PREFIX
from builtin_plugins.model_native.weights import EMBEDDING, HEAD, Weights
from hookspecs.errors import InvalidRequestError

__all__ = ["replace_weights"]

_IGNORED = re.compile(r"rotary_emb\.inv_freq$")
"""Buffers that old checkpoints have and models compute."""


def replace_weights(
    weights: Weights, architecture: str, tensors: Mapping[str, torch.Tensor], unused: frozenset[str]
) -> int:
    """Put tensors, by their names in checkpoints, in place; returns how many parameters have new
    values. Everything is checked before anything is written: InvalidRequestError for what does not
    fit. `unused`: names that the checkpoint which was loaded has, and the model has not; they are
    ignored, as they were then.
    """
    if not tensors:
        raise _misfit("there are no tensors; give at least one")
    named: dict[str, str] = {}
    for name in tensors:
        target = _target(weights, architecture, name, unused)
        if target is None:
            continue
        other = named.setdefault(target, name)
        if other != name and not torch.equal(tensors[other].float(), tensors[name].float()):
            raise _misfit(
                f"{other!r} and {name!r} are the same weight in this model, but their values "
                "differ; give one of them, or equal ones"
            )
        _check(name, tensors[name], weights.parameters[target].shape)
    for target, name in named.items():
        weights.parameters[target].write(tensors[name])
    return len(named)


def _target(weights: Weights, architecture: str, name: str, unused: frozenset[str]) -> str | None:
    """The parameter that a name of a checkpoint means; None for one that loading ignores."""
    tied = HEAD not in weights.parameters
    for candidate in (name, BASE_PREFIX + name, EMBEDDING if tied and name == HEAD else name):
        if candidate in weights.parameters:
            return candidate
        if candidate in unused:
            return None
    if _IGNORED.search(name):
        return None
    nearest = difflib.get_close_matches(name, weights.parameters, n=1, cutoff=0.0)
    raise _misfit(f"{architecture} has no weight {name!r}; the nearest name is {nearest[0]!r}")


def _check(name: str, tensor: torch.Tensor, shape: torch.Size) -> None:
    if not tensor.dtype.is_floating_point:
        kind = str(tensor.dtype).removeprefix("torch.")
        raise _misfit(f"{name!r} has dtype {kind}; needed is a floating-point type")
    if tensor.shape != shape:
        raise _misfit(f"{name!r} has shape {tuple(tensor.shape)}; needed is {tuple(shape)}")


def _misfit(reason: str) -> InvalidRequestError:
    return InvalidRequestError(f"update_weights: {reason}. Nothing was replaced.", param="tensors")
