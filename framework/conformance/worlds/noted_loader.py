"""What a worker asks for when it wants a model loader, and what it then has it load."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from hookspecs.contracts.model import LoadedModel, ModelLoader, ResolvedModel

__all__ = ["LoaderNotes", "Noted"]


class Noted(NamedTuple):
    """A call of `load`."""

    asked_dtype: str
    asked_device: str
    """That `create_loader` was asked for; "": none in particular."""
    dtype: str
    device: str


class LoaderNotes:
    """A `create_loader` of a worker's context."""

    def __init__(self, create: Callable[..., ModelLoader], checkpoint_dtype: str) -> None:
        self._create = create
        self._checkpoint_dtype = checkpoint_dtype
        self.loads: list[Noted] = []

    def __call__(self, *, dtype: str = "", device: str = "") -> ModelLoader:
        asked = dtype or self._checkpoint_dtype
        return _NotingLoader(self._create(dtype=asked, device=device), asked, device, self.loads)


class _NotingLoader(ModelLoader):
    """Has another one load, and notes how."""

    def __init__(self, real: ModelLoader, dtype: str, device: str, loads: list[Noted]) -> None:
        super().__init__(real.context)
        self._real = real
        self._asked = dtype, device
        self._loads = loads

    def load(self, model: ResolvedModel, *, dtype: str, device: str) -> LoadedModel:
        self._loads.append(Noted(*self._asked, dtype, device))
        return self._real.load(model, dtype=dtype, device=device)
