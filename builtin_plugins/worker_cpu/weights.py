"""The tensors that `update_weights` is given: from safetensors files, or as arrays."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open

from hookspecs.errors import InvalidRequestError

__all__ = ["given_tensors"]

_SUFFIX = ".safetensors"
_SINGLE = "model.safetensors"
_INDEX = "model.safetensors.index.json"


def given_tensors(path: str | None, tensors: Mapping[str, Any] | None) -> dict[str, torch.Tensor]:
    """Checkpoint name to tensor. Those of files are mapped into memory, not read.

    InvalidRequestError unless exactly one is given and can be understood. A directory is read as
    transformers reads one: model.safetensors, or the files that model.safetensors.index.json
    names; with neither, all of its .safetensors files.
    """
    if (path is None) == (tensors is None):
        raise InvalidRequestError(
            "update_weights takes either path or tensors, and exactly one of them", param="path"
        )
    if path is not None:
        try:
            return _from_path(Path(path))
        except OSError as error:
            raise _invalid("path", f"{path!r} can not be read: {error}") from error
    assert tensors is not None
    return {name: _as_tensor(name, value) for name, value in tensors.items()}


def _as_tensor(name: str, value: Any) -> torch.Tensor:
    if isinstance(value, torch.Tensor):
        return value.detach()
    if not isinstance(value, np.ndarray):
        raise _invalid(
            "tensors", f"{name!r} is a {type(value).__name__}, no numpy array or torch tensor"
        )
    try:
        # Torch refuses negative strides, and warns of read-only memory: only these are copied.
        return torch.from_numpy(np.require(value, requirements=["C", "W"]))
    except (TypeError, ValueError) as error:
        raise _invalid("tensors", f"{name!r}: {error}") from error


def _from_path(path: Path) -> dict[str, torch.Tensor]:
    if path.is_dir():
        found: dict[str, torch.Tensor] = {}
        for file in _files_of(path):
            read = _read(file)
            twice = found.keys() & read.keys()
            if twice:
                raise _invalid("path", f"{min(twice)!r} is in more than one file of {str(path)!r}")
            found |= read
        return found
    if not path.exists():
        raise _invalid("path", f"{str(path)!r} does not exist on the machine of the worker")
    if path.suffix != _SUFFIX:
        raise _invalid(
            "path",
            f"{str(path)!r} is neither a directory nor a {_SUFFIX} file. Weights are read from "
            "safetensors files only; convert others.",
        )
    return _read(path)


def _files_of(directory: Path) -> list[Path]:
    if (directory / _SINGLE).is_file():
        return [directory / _SINGLE]
    if (directory / _INDEX).is_file():
        return [directory / name for name in _indexed(directory / _INDEX)]
    files = sorted(file for file in directory.iterdir() if file.suffix == _SUFFIX)
    if not files:
        raise _invalid("path", f"the directory {str(directory)!r} has no {_SUFFIX} files")
    return files


def _indexed(index: Path) -> list[str]:
    """The file names in an index."""
    try:
        weight_map = json.loads(index.read_bytes())["weight_map"]
        names = sorted(set(weight_map.values()))
    except (OSError, ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
        raise _invalid(
            "path", f"{str(index)!r} is no index of safetensors files: {error!r}"
        ) from error
    for name in names:
        if not isinstance(name, str) or Path(name).name != name or not name.endswith(_SUFFIX):
            raise _invalid(
                "path", f"{str(index)!r} names {name!r}, which is no {_SUFFIX} file beside it"
            )
    return names


def _read(file: Path) -> dict[str, torch.Tensor]:
    if file.exists() and not file.is_file():  # opening a pipe would wait
        raise _invalid("path", f"{str(file)!r} is no regular file; give a {_SUFFIX} file")
    try:
        with safe_open(file, framework="pt") as opened:
            return {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise _invalid("path", f"{str(file)!r} can not be read: {error}") from error


def _invalid(param: str, reason: str) -> InvalidRequestError:
    return InvalidRequestError(f"{param}: {reason}", param=param)
