"""Tensors for plugins that compute."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch

__all__ = ["zeros_on_demand"]


def zeros_on_demand(shape: Sequence[int], dtype: torch.dtype, device: str) -> torch.Tensor:
    """A zeroed tensor. On the CPU its pages are taken when they are first written: a KV cache
    of gigabytes is there at once and uses what is in use.

    `torch.zeros` writes every page. `numpy.zeros` takes zeroed pages from the system (calloc);
    the tensor shares its memory and keeps it alive.
    """
    if device != "cpu":
        return torch.zeros(*shape, dtype=dtype, device=device)
    count = math.prod(shape)
    raw = torch.from_numpy(np.zeros(count * dtype.itemsize, np.uint8))
    return raw.view(dtype).view(*shape)
