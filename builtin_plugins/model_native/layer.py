"""The structures of kernels/layer.c, and its functions."""

from __future__ import annotations

import ctypes

from builtin_plugins.model_native.linear import Linear

__all__ = ["Buffers", "Layer", "Shape", "declare"]


class Layer(ctypes.Structure):
    """`layer`: the weights of one."""

    _fields_ = (
        ("qkv", Linear),
        ("out", Linear),
        ("gate_up", Linear),
        ("down", Linear),
        ("input_norm", ctypes.c_void_p),
        ("post_norm", ctypes.c_void_p),
        ("query_norm", ctypes.c_void_p),
        ("key_norm", ctypes.c_void_p),
    )


class Shape(ctypes.Structure):
    """`shape`: the same for all layers of a model."""

    _fields_ = (
        ("hidden", ctypes.c_int64),
        ("heads", ctypes.c_int64),
        ("kv_heads", ctypes.c_int64),
        ("head_size", ctypes.c_int64),
        ("inner", ctypes.c_int64),
        ("eps", ctypes.c_float),
    )


class Buffers(ctypes.Structure):
    """`buffers`: what a step computes in."""

    _fields_ = (
        ("x", ctypes.c_void_p),
        ("qkv", ctypes.c_void_p),
        ("cosine", ctypes.c_void_p),
        ("sine", ctypes.c_void_p),
        ("normed", ctypes.c_void_p),
        ("gate_up", ctypes.c_void_p),
        ("scratch", ctypes.c_void_p),
        ("block", ctypes.c_int64),
        ("ld_normed", ctypes.c_int64),
        ("ld_gate_up", ctypes.c_int64),
    )


def declare(kernels: ctypes.CDLL) -> None:
    """Argument types of the exported functions. Structures go by address, which costs less at
    each call than a reference."""
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    kernels.layer_before.argtypes = [pointer, pointer, pointer, number]
    kernels.layer_after.argtypes = [pointer, pointer, pointer, pointer, number]
    kernels.final_norm.argtypes = [pointer, pointer, pointer, number, pointer]
    kernels.rope_angles.argtypes = [
        *(pointer, number, pointer, number),
        *(ctypes.c_float, pointer, pointer),
    ]
    for name in ("layer_before", "layer_after", "final_norm", "rope_angles"):
        getattr(kernels, name).restype = None
