"""Checkpoints that are written once, and their references."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache

import pytest
import torch

from hookspecs.contracts.model import ResolvedModel
from tests.model_native.families import FAMILIES
from tests.worker_cpu.families import Reference, save_model


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> Iterator[None]:
    """These models are too small for threads of torch to pay."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], ResolvedModel]:
    """A family's name to its checkpoint."""

    @cache
    def make(family: str) -> ResolvedModel:
        return save_model(tmp_path_factory.mktemp(family), **FAMILIES[family])

    return make


@pytest.fixture(scope="session")
def reference(checkpoint: Callable[[str], ResolvedModel]) -> Callable[[str], Reference]:
    """A family's name to the same checkpoint in plain transformers."""
    return cache(lambda family: Reference(checkpoint(family)))
