"""Replaces weights of a loaded model, in place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from builtin_plugins.model_transformers.checkpoint_names import (
    CheckpointNames,
    TensorGroup,
    misfit,
)
from hookspecs.errors import InvalidRequestError, UnsupportedFeatureError

__all__ = ["replace_weights"]

Tensors = Mapping[str, torch.Tensor]


def replace_weights(model: Any, tensors: Tensors, unused: frozenset[str]) -> int:
    """Copy tensors, by their names in checkpoints, into a model's parameters; returns how many
    parameters have new values: several tensors may make one.

    Everything is checked before anything is copied. InvalidRequestError for what does not fit,
    UnsupportedFeatureError for quantized models. `unused`: names that the checkpoint which was
    loaded has, and the model has not; they are ignored, as they were then.
    """
    if getattr(model, "hf_quantizer", None) is not None:
        raise UnsupportedFeatureError("weights of quantized models can not be replaced in place")
    if not tensors:
        raise misfit("there are no tensors; give at least one")
    names = CheckpointNames(model, unused)
    groups = names.group(tensors)
    for group in groups:
        _check_tensors(group, tensors, names)
    written = _written(groups, tensors, names)
    with torch.no_grad():
        for group in groups:
            values = _convert(group, tensors, names)
            for target in written[group.target]:
                names.parameters[target].copy_(values[target])
    return sum(len(targets) for targets in written.values())


def _check_tensors(group: TensorGroup, tensors: Tensors, names: CheckpointNames) -> None:
    """Types, and shapes where the checkpoint's are known."""
    dtype = names.parameters[group.target].dtype
    for name in group.names:
        tensor = tensors[name]
        if tensor.dtype.is_floating_point != dtype.is_floating_point or tensor.dtype.is_complex:
            kind = "a floating-point type" if dtype.is_floating_point else "an integer type"
            raise misfit(f"{name!r} has dtype {_name(tensor.dtype)}; needed is {kind}")
        expected = names.checkpoint.get(name)
        if expected is not None and tensor.shape != expected.shape:
            raise _wrong_shape(name, name, tensor.shape, expected.shape)


def _written(
    groups: list[TensorGroup], tensors: Tensors, names: CheckpointNames
) -> dict[str, list[str]]:
    """For each group, by its target, the parameters to write: all that it makes but those that
    are tied to one of another group, whose values must be the same."""
    written: dict[str, list[str]] = {}
    owners: dict[int, tuple[TensorGroup, str]] = {}
    for group in groups:
        written[group.target] = []
        for target, shape in _made_shapes(group, tensors, names).items():
            parameter = names.parameters.get(target)
            if parameter is None:
                raise misfit(f"{group.names[0]!r} makes {target!r}, which {names.kind} has not")
            if parameter.shape != shape:
                raise _wrong_shape(group.names[0], target, shape, parameter.shape)
            owner, owned = owners.setdefault(id(parameter), (group, target))
            if owner is group:
                written[group.target].append(target)
                continue
            first = _convert(owner, tensors, names)[owned]
            if not torch.equal(first, _convert(group, tensors, names)[target]):
                raise misfit(
                    f"{owner.names[0]!r} and {group.names[0]!r} are tied in this model, but their "
                    "values differ; give one of them, or equal ones"
                )
    return written


def _made_shapes(
    group: TensorGroup, tensors: Tensors, names: CheckpointNames
) -> dict[str, torch.Size]:
    """Parameter name to the shape that the group makes; without values."""
    shadows = {name: tensors[name].to("meta") for name in group.names}
    try:
        made = group.convert(shadows, names.model)
    except (RuntimeError, ValueError, LookupError) as error:
        raise misfit(
            f"{group.names[0]!r} and the tensors merged with it do not make {group.target!r} "
            f"({type(error).__name__}: {error}); give all of them, in the checkpoint's shapes"
        ) from error
    return {name: value.shape for name, value in made.items()}


def _convert(
    group: TensorGroup, tensors: Tensors, names: CheckpointNames
) -> dict[str, torch.Tensor]:
    """A group's new parameters, from tensors in the parameter's type: as loading does it."""
    dtype = names.parameters[group.target].dtype
    return group.convert({name: tensors[name].to(dtype) for name in group.names}, names.model)


def _wrong_shape(
    name: str, target: str, given: torch.Size, expected: torch.Size
) -> InvalidRequestError:
    made = "" if name == target else f", as {target!r},"
    return misfit(f"{name!r}{made} has shape {tuple(given)}; needed is {tuple(expected)}")


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
