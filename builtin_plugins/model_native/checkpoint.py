"""Tensors of a checkpoint in safetensors files, read a few at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

from framework.sdk.model_directory.json_file import read_object
from hookspecs.errors import UnsupportedModelError

__all__ = ["BASE_PREFIX", "Checkpoint"]

BASE_PREFIX = "model."
"""Of all names but the head's. Checkpoints of the model without its head lack it."""

_SINGLE = "model.safetensors"
_INDEX = "model.safetensors.index.json"


class Checkpoint:
    """A directory with model.safetensors, or the files that its index names."""

    def __init__(self, path: Path) -> None:
        """UnsupportedModelError for files that can not be read."""
        self._places: dict[str, tuple[Path, str]] = {}
        """Name to file and name in it."""
        shapes: dict[str, torch.Size] = {}
        single = path / _SINGLE
        files = [single] if single.is_file() else _indexed(path / _INDEX)
        for file in files:
            with _opened(file) as opened:
                for name in opened.keys():  # noqa: SIM118
                    self._places[name] = file, name
                    shapes[name] = torch.Size(opened.get_slice(name).get_shape())
        if not any(name.startswith(BASE_PREFIX) for name in self._places):
            self._places = {_prefixed(name): place for name, place in self._places.items()}
            shapes = {_prefixed(name): shape for name, shape in shapes.items()}
        self.names = frozenset(self._places)
        """Of all tensors."""
        self.shapes: Mapping[str, torch.Size] = shapes
        """Of all tensors, as the files say that hold them."""

    def tensors(self, names: Sequence[str]) -> Iterator[tuple[str, torch.Tensor]]:
        """Each name with its tensor, which is mapped into memory: it is to be used at once. Files
        are opened for this call, so that what was read before takes no memory.

        UnsupportedModelError for what can not be read.
        """
        by_file: dict[Path, list[str]] = {}
        for name in names:
            by_file.setdefault(self._places[name][0], []).append(name)
        for file, inside in by_file.items():
            with _opened(file) as opened:
                for name in inside:
                    try:
                        tensor = opened.get_tensor(self._places[name][1])
                    except SafetensorError as error:
                        raise _unreadable(file, error) from error
                    yield name, tensor


def _prefixed(name: str) -> str:
    return name if name.startswith("lm_head.") else BASE_PREFIX + name


def _opened(file: Path) -> safe_open:
    try:
        if not file.is_file():
            raise OSError("it is no file")  # opening a pipe would wait
        return safe_open(file, framework="pt")
    except (OSError, SafetensorError) as error:
        raise _unreadable(file, error) from error


def _indexed(index: Path) -> list[Path]:
    try:
        weight_map = read_object(index).get("weight_map")
    except OSError as error:
        raise _unreadable(index, error) from error
    names = set(weight_map.values()) if isinstance(weight_map, dict) else set()
    if not names or not all(isinstance(name, str) and Path(name).name == name for name in names):
        raise UnsupportedModelError(
            f"{str(index)!r} is no index of safetensors files beside it. Download the model again."
        )
    return [index.parent / name for name in sorted(names)]


def _unreadable(file: Path, error: Exception) -> UnsupportedModelError:
    return UnsupportedModelError(
        f"{str(file)!r} can not be read ({type(error).__name__}: {error}). The file is damaged or "
        "incomplete; download the model again."
    )
