"""Checkpoints of tiny models, saved once a run."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hookspecs.contracts.model import ResolvedModel
from tests.worker_cpu.families import FAMILIES, Reference, save_model


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], ResolvedModel]:
    """The saved model of a family."""
    saved: dict[str, ResolvedModel] = {}

    def get(family: str) -> ResolvedModel:
        if family not in saved:
            directory = tmp_path_factory.mktemp(family)
            saved[family] = save_model(directory, **FAMILIES[family])
        return saved[family]

    return get


@pytest.fixture(scope="session")
def reference(checkpoint: Callable[[str], ResolvedModel]) -> Callable[[str], Reference]:
    """A family's model in plain transformers."""
    loaded: dict[str, Reference] = {}

    def get(family: str) -> Reference:
        if family not in loaded:
            loaded[family] = Reference(checkpoint(family))
        return loaded[family]

    return get
