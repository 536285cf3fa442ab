"""What a step computes in: kept from step to step, larger when a step needs it."""

from __future__ import annotations

import ctypes

import torch

from builtin_plugins.model_native.architecture import Architecture
from builtin_plugins.model_native.layer import Buffers
from builtin_plugins.model_native.memory import aligned_bytes
from builtin_plugins.model_native.weights import Weights

__all__ = ["Workspace"]

_BLOCK = 128
"""Tokens that go through a layer's products together, so that what lies between two products is
still in the cache."""


class Workspace:
    """Of one model; its contents are those of the step that runs."""

    def __init__(self, architecture: Architecture, weights: Weights) -> None:
        self._architecture = architecture
        self._qkv_width = sum(architecture.qkv_parts)
        self.buffers = Buffers(
            block=_BLOCK,
            ld_normed=_odd_lines(architecture.hidden),
            ld_gate_up=_odd_lines(2 * architecture.inner),
        )
        self.address = ctypes.addressof(self.buffers)
        """Of `buffers`."""
        self._normed = _floats(_BLOCK, self.buffers.ld_normed)
        self._gate_up = _floats(_BLOCK, self.buffers.ld_gate_up)
        scratch = max(linear.scratch_bytes(_BLOCK) for linear in weights.linears)
        self._scratch = aligned_bytes(scratch)
        self.buffers.normed = self._normed.data_ptr()
        self.buffers.gate_up = self._gate_up.data_ptr()
        self.buffers.scratch = self._scratch.data_ptr()
        self._capacity = 0

    def make_room(self, tokens: int) -> None:
        """For a step of so many."""
        if tokens <= self._capacity:
            return
        a = self._architecture
        self._capacity = max(tokens, 2 * self._capacity)
        self.x = _floats(self._capacity, a.hidden)
        """float32 [tokens, hidden]: the residual stream."""
        self.qkv = _floats(self._capacity, self._qkv_width)
        """float32 [tokens, features of query, key and value]"""
        self.cosine = _floats(self._capacity, a.head_size // 2)
        """float32 [tokens, head size / 2]"""
        self.sine = _floats(self._capacity, a.head_size // 2)
        for name in ("x", "qkv", "cosine", "sine"):
            setattr(self.buffers, name, getattr(self, name).data_ptr())

    def qkv_views(self, tokens: int) -> list[torch.Tensor]:
        """Query, key and value of the step's tokens, each [tokens, its heads, head size]."""
        parts = torch.split(self.qkv[:tokens], list(self._architecture.qkv_parts), 1)
        return [part.view(tokens, -1, self._architecture.head_size) for part in parts]


def _odd_lines(width: int) -> int:
    """Floats from row to row: an odd number of cache lines, so that the rows of a tile fall into
    different sets of the cache."""
    return 16 * (-(-width // 16) | 1)


def _floats(rows: int, width: int) -> torch.Tensor:
    return aligned_bytes(4 * rows * width).view(torch.float32).view(rows, width)
