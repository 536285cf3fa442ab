"""Tensors for plugins that compute."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch

__all__ = ["zeros_on_demand"]

_ALIGNMENT = 64
"""Bytes of a line of a processor's cache, and of its longest vectors."""


def zeros_on_demand(shape: Sequence[int], dtype: torch.dtype, device: str) -> torch.Tensor:
    """A zeroed tensor. On the CPU its pages are taken when they are first written: a KV cache
    of gigabytes is there at once and uses what is in use. It begins at a multiple of 64 bytes.

    `torch.zeros` writes every page. `numpy.zeros` takes zeroed pages from the system (calloc);
    the tensor shares its memory and keeps it alive.
    """
    if device != "cpu":
        return torch.zeros(*shape, dtype=dtype, device=device)
    size = math.prod(shape) * dtype.itemsize
    raw = np.zeros(size + _ALIGNMENT, np.uint8)
    begin = -raw.ctypes.data % _ALIGNMENT
    return torch.from_numpy(raw[begin : begin + size]).view(dtype).view(*shape)
