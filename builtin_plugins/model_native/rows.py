"""Numbers of rows, which kernels follow without looking."""

from __future__ import annotations

import ctypes

import torch

__all__ = ["checked", "declare"]


def declare(kernels: ctypes.CDLL) -> None:
    """Argument types of kernels/rows.c."""
    kernels.rows_inside.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64]
    kernels.rows_inside.restype = ctypes.c_int64


def checked(kernels: ctypes.CDLL, rows: torch.Tensor, limit: int) -> torch.Tensor:
    """`rows`, contiguous. Raises IndexError unless they are int64 and in 0 to limit - 1."""
    if rows.dtype != torch.int64:
        raise IndexError(f"rows are of type {rows.dtype}; needed is torch.int64")
    rows = rows.contiguous()
    inside = kernels.rows_inside(rows.data_ptr(), len(rows), limit)
    if inside != len(rows):
        raise IndexError(f"row {int(rows[inside])} is out of range; there are {limit} rows")
    return rows
