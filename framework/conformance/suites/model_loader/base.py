"""What the parts of the suite of model loaders share."""

from __future__ import annotations

import pytest

from framework.conformance.subject import Subject
from framework.conformance.worlds.loaded_models import ModelWorld
from framework.conformance.worlds.tensors import TensorConformance

__all__ = ["ModelLoaderPart"]


class ModelLoaderPart(TensorConformance):
    """A loader, and a checkpoint whose logits are known."""

    kind = "model_loader"

    @pytest.fixture
    def world(self, subject: Subject, device: str, seed: int) -> ModelWorld:
        """The loader, and the model to load."""
        return ModelWorld(subject, device, seed)
