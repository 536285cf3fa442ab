"""Memory for weights and activations, aligned for the kernels."""

from __future__ import annotations

import torch

from framework.sdk.tensors import zeros_on_demand

__all__ = ["ALIGNMENT", "Memory", "aligned_bytes"]

ALIGNMENT = 64
"""Bytes: of a cache line and of the widest vectors; what `zeros_on_demand` keeps to."""
_CHUNK = 2**26
"""Bytes taken from the system at a time, at least: enough for huge pages, which numpy asks for."""


def aligned_bytes(count: int) -> torch.Tensor:
    """uint8 [count], zeroed, at an address that `ALIGNMENT` divides; pages are taken when they
    are first written."""
    return zeros_on_demand((count,), torch.uint8, "cpu")


class Memory:
    """Hands out pieces of few large allocations. Nothing goes back before all tensors are gone."""

    def __init__(self) -> None:
        self._chunk = aligned_bytes(0)
        self._used = 0
        self.taken = 0
        """Bytes handed out so far."""

    def take(self, count: int) -> torch.Tensor:
        """uint8 [count], zeroed and aligned."""
        self.taken += count
        if self._used + count > len(self._chunk):
            self._chunk, self._used = aligned_bytes(max(count, _CHUNK)), 0
        begin = self._used
        self._used += -(-count // ALIGNMENT) * ALIGNMENT
        return self._chunk[begin : begin + count]
