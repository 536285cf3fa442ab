"""The compiled kernels of this backend, and the structures that they share with Python."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import torch

from framework.sdk.native import load_library

__all__ = ["NUMBER_TYPES", "PagedCacheStruct", "PagedStepStruct", "load_kernels"]

NUMBER_TYPES = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}
"""As the kernels name them."""

_INT, _FLOAT, _POINTER = ctypes.c_int64, ctypes.c_float, ctypes.c_void_p


class PagedCacheStruct(ctypes.Structure):
    """`paged_cache` of kernels/cache.h."""

    _fields_ = (
        ("data", _POINTER),
        ("num_blocks", _INT),
        ("kv_heads", _INT),
        ("head_size", _INT),
        ("block_size", _INT),
        ("type", _INT),
    )


class PagedStepStruct(ctypes.Structure):
    """`paged_step` of kernels/cache.h."""

    _fields_ = (
        ("rows", _INT),
        ("tokens", _INT),
        ("table_stride", _INT),
        ("query_start", _POINTER),
        ("seq_lens", _POINTER),
        ("block_tables", _POINTER),
        ("slots", _POINTER),
    )


def load_kernels() -> ctypes.CDLL:
    """Structures and tensors are passed by their addresses. KernelsUnavailable."""
    library = load_library("attention-cpu-paged", Path(__file__).parent / "kernels" / "attention.c")
    signatures: dict[str, list[Any]] = {
        "paged_key_width": [_POINTER],
        # cache, step; key and value with the strides of tokens and heads; type
        "paged_write": [_POINTER, _POINTER, *[_POINTER, _INT, _INT] * 2, _INT],
        # cache, step; query with its strides; out; heads, type, scale, window, soft cap, sinks
        "paged_forward": [
            *[_POINTER, _POINTER, _POINTER, _INT, _INT, _POINTER],
            *[_INT, _INT, _FLOAT, _INT, _FLOAT, _POINTER],
        ],
    }
    for name, arguments in signatures.items():
        function = getattr(library, name)
        function.argtypes, function.restype = arguments, _INT
    return library
