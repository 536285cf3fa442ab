"""Linear layers whose weights are packed for the kernels."""

from __future__ import annotations

import ctypes
import math

import numpy as np
import torch

from builtin_plugins.model_native.gguf_blocks import Groups
from builtin_plugins.model_native.memory import Memory
from builtin_plugins.model_native.rows import checked

__all__ = ["Linear", "PackedLinear", "declare"]


class Linear(ctypes.Structure):
    """`linear` of kernels/linear.h."""

    _fields_ = (
        ("format", ctypes.c_int32),
        ("reserved", ctypes.c_int32),
        ("in_", ctypes.c_int64),
        ("out", ctypes.c_int64),
        ("data", ctypes.c_void_p),
        ("bias", ctypes.c_void_p),
    )


def declare(kernels: ctypes.CDLL) -> None:
    """Argument types of the exported functions of kernels/linear.c."""
    layer, number, pointer = ctypes.POINTER(Linear), ctypes.c_int64, ctypes.c_void_p
    kernels.linear_data_bytes.argtypes = [layer]
    kernels.linear_data_bytes.restype = number
    kernels.linear_scratch_bytes.argtypes = [layer, number]
    kernels.linear_scratch_bytes.restype = number
    kernels.linear_pack.argtypes = [layer, pointer, number, number]
    kernels.linear_pack.restype = None
    kernels.linear_pack_groups.argtypes = [layer, *(pointer,) * 3, number, number]
    kernels.linear_pack_groups.restype = None
    kernels.linear_unpack_rows.argtypes = [layer, pointer, number, pointer]
    kernels.linear_unpack_rows.restype = None
    kernels.linear_forward.argtypes = [
        *(layer, pointer, number, number),
        *(pointer, number, ctypes.c_int32, pointer),
    ]
    kernels.linear_forward.restype = None


class PackedLinear:
    """y = x W^T + bias, with the weights [out, in] in one of `formats`.

    Rows of weights are packed a few at a time into memory that is taken once, so that there is
    never a second copy of all of them.
    """

    def __init__(
        self,
        kernels: ctypes.CDLL,
        format: int,
        out_features: int,
        in_features: int,
        memory: Memory,
        *,
        bias: bool = False,
    ) -> None:
        """Weights and bias are zero until `pack`."""
        self._kernels = kernels
        self.struct = Linear(format=format, in_=in_features, out=out_features)
        self._data = memory.take(kernels.linear_data_bytes(self.struct))
        self.struct.data = self._data.data_ptr()
        self.bias: torch.Tensor | None = None
        """float32 [out]"""
        if bias:
            self.bias = memory.take(4 * out_features).view(torch.float32)
            self.struct.bias = self.bias.data_ptr()

    def pack(self, weight: torch.Tensor, first: int = 0) -> None:
        """Weights [rows, in], of any floating-point type, become rows `first` and on."""
        # Not all at once: a head or an embedding is large.
        step = max(1, _CONVERTED // max(1, self.struct.in_))
        for begin in range(0, len(weight), step):
            part = weight[begin : begin + step].float().contiguous()
            self._kernels.linear_pack(self.struct, part.data_ptr(), first + begin, len(part))

    def pack_groups(self, groups: Groups, first: int) -> None:
        """Rows that are quantized already become rows `first` and on, as they are. Only of formats
        with groups."""
        arrays = [np.ascontiguousarray(array) for array in groups]
        self._kernels.linear_pack_groups(
            self.struct, *(array.ctypes.data for array in arrays), first, len(groups.codes)
        )

    def unpack_rows(self, rows: torch.Tensor, to: torch.Tensor) -> None:
        """Put the weights of output features int64 `rows` into `to`, float32 [len(rows), in],
        contiguous. IndexError for one that there is not."""
        rows = checked(self._kernels, rows, self.struct.out)
        self._kernels.linear_unpack_rows(self.struct, rows.data_ptr(), len(rows), to.data_ptr())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """float32 x [rows, in], whose rows are contiguous, to [rows, out]."""
        y = torch.empty(len(x), self.struct.out)
        scratch = torch.empty(self.scratch_bytes(len(x)) + 64, dtype=torch.uint8)
        aligned = math.ceil(scratch.data_ptr() / 64) * 64
        self._kernels.linear_forward(
            *(self.struct, x.data_ptr(), x.stride(0), len(x)),
            *(y.data_ptr(), self.struct.out, 0, aligned),
        )
        return y

    def scratch_bytes(self, rows: int) -> int:
        """That `linear_forward` needs for so many rows of x."""
        needed: int = self._kernels.linear_scratch_bytes(self.struct, rows)
        return needed


_CONVERTED = 2**22
"""Elements that are converted to float32 at a time while packing."""
