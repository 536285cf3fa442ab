"""Suites of what computes with torch."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from framework.conformance.base import Conformance

__all__ = ["TensorConformance"]


class TensorConformance(Conformance):
    """Runs on one device, in one thread: its tensors are too small for several to pay."""

    @pytest.fixture
    def device(self, request: pytest.FixtureRequest) -> str:
        """Where tensors lie, as torch names it: `--device` of `framework conform`, else `cpu`; a
        subclass for another device overrides it."""
        return str(getattr(request.config, "conform_device", "cpu"))

    @pytest.fixture(autouse=True)
    def _one_thread(self) -> Iterator[None]:
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        yield
        torch.set_num_threads(threads)
