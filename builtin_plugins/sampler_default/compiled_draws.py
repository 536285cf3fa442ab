"""`draws.draw` as a compiled kernel, for logits in host memory."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from builtin_plugins.sampler_default.draws import DrawColumns, draw
from framework.sdk.native import KernelsUnavailable, load_library
from hookspecs.types.columns import Int64Column

__all__ = ["Draw", "best_draw"]

Draw = Callable[[torch.Tensor, Int64Column, DrawColumns], Int64Column]
_KERNEL = Path(__file__).parent / "kernels" / "draw.c"


def best_draw(device: torch.device) -> Draw:
    """The kernel where it can be built and reaches the logits, else `draws.draw`."""
    if device.type != "cpu":
        return draw
    try:
        kernel = _kernel()
    except KernelsUnavailable:
        return draw
    return functools.partial(_draw, kernel)


@functools.cache
def _kernel() -> Any:
    kernel = load_library("sampler_default", _KERNEL).draw_tokens
    pointer, int64 = ctypes.c_void_p, ctypes.c_int64
    kernel.argtypes = [pointer, int64, pointer, int64, *[pointer] * 6]
    kernel.restype = ctypes.c_int
    return kernel


def _draw(
    kernel: Any, logits: torch.Tensor, rows: Int64Column, columns: DrawColumns
) -> Int64Column:
    logits = logits.float().contiguous()
    tokens: Int64Column = np.empty(len(rows), dtype=np.int64)
    failed = kernel(
        logits.data_ptr(),
        logits.shape[1],
        rows.ctypes.data,
        len(rows),
        columns.temperature.ctypes.data,
        columns.min_p.ctypes.data,
        columns.top_k.ctypes.data,
        columns.top_p.ctypes.data,
        columns.uniforms.ctypes.data,
        tokens.ctypes.data,
    )
    if failed:
        raise MemoryError("no memory to draw tokens")
    return tokens
