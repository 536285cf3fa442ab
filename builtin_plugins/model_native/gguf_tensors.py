"""Weights that stay as a GGUF file has them.

The converted model's directory has a record, `gguf.json`, of where each tensor lies in the file:
an object with `file` (path, size in bytes, mtime_ns) and `tensors`, each with its GGUF `type`,
`shape`, `offset` in bytes, and `heads`, the number of heads whose rows are interleaved, or 0.
"""

from __future__ import annotations

import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

import msgspec
import numpy as np
from msgspec import Meta

from builtin_plugins.model_native.formats import FLOAT32, GGUF_RECORD, INT4, INT8_GROUPED
from builtin_plugins.model_native.gguf_blocks import BLOCK_TYPES, Bytes, Groups
from hookspecs.errors import UnsupportedModelError

__all__ = ["GgufTensors"]

_FLOATS: Final = frozenset({"F64", "F32", "F16", "BF16"})


class _File(msgspec.Struct):
    path: str
    size: int
    mtime_ns: int


class _Tensor(msgspec.Struct):
    type: str
    shape: tuple[Annotated[int, Meta(ge=1)], ...]
    offset: Annotated[int, Meta(ge=0)]
    heads: Annotated[int, Meta(ge=0)]


class _Record(msgspec.Struct):
    file: _File
    tensors: dict[str, _Tensor]


class GgufTensors:
    """The tensors of the file that a model was converted from, by the converted names."""

    def __init__(self, directory: Path) -> None:
        """UnsupportedModelError if the record or the file can not be read, or if the file changed
        or is gone."""
        try:
            self._record = msgspec.json.decode((directory / GGUF_RECORD).read_bytes(), type=_Record)
        except (OSError, msgspec.MsgspecError) as error:
            raise UnsupportedModelError(
                f"{str(directory / GGUF_RECORD)!r} can not be read ({error}). Remove the "
                "directory, and the model is converted again."
            ) from error
        self._mapped()

    def format_of(self, names: Sequence[str]) -> int:
        """The one format that holds all of these weights, which become one layer: the exact values
        of each, but for types without groups of 32 weights (Q2_K, Q3_K, Q6_K, IQ…), which are
        quantized again, to 8 bits a weight."""
        types = {self._record.tensors[name].type for name in names if name in self._record.tensors}
        if not types or types & _FLOATS:
            return FLOAT32
        bits = (BLOCK_TYPES[type].bits if type in BLOCK_TYPES else 8 for type in types)
        return INT4 if max(bits) <= 4 else INT8_GROUPED

    def groups(self, name: str) -> Groups | None:
        """The weights of a tensor as they are in the file, rows in the order of the converted
        tensor; None for a type that has no groups of 32 weights, or that the record lacks.

        UnsupportedModelError for values that the kernels can not hold.
        """
        tensor = self._record.tensors.get(name)
        block = BLOCK_TYPES.get(tensor.type) if tensor is not None else None
        if tensor is None or block is None:
            return None
        if len(tensor.shape) != 2:
            raise UnsupportedModelError(
                f"the GGUF file {self._record.file.path!r} has {name!r} of shape {tensor.shape}; "
                "needed is a matrix. It is damaged; download it again."
            )
        rows, width = tensor.shape
        size = rows * width // block.weights * block.size
        data = self._mapped()[tensor.offset : tensor.offset + size]
        if width % block.weights or rows % max(1, 2 * tensor.heads) or len(data) != size:
            raise UnsupportedModelError(
                f"the GGUF file {self._record.file.path!r} has no {rows} rows of {width} weights "
                f"for {name!r}. It is damaged; download it again."
            )
        groups = block.groups(_in_order(np.asarray(data).reshape(rows, -1), tensor.heads))
        if not (np.isfinite(groups.scales).all() and np.isfinite(groups.minima).all()):
            raise UnsupportedModelError(
                f"{name!r} has weights above what 16 bits hold. Use int8 or int4 instead."
            )
        return groups

    def _mapped(self) -> Bytes:
        """The file, mapped for as long as it is used, so that what was read takes no memory."""
        file = self._record.file
        try:
            state = Path(file.path).stat()
            if not stat.S_ISREG(state.st_mode):
                raise OSError("it is no file")  # opening a pipe would wait
            if (state.st_size, state.st_mtime_ns) != (file.size, file.mtime_ns):
                raise OSError("it changed after it was found")
            return np.memmap(file.path, dtype=np.uint8, mode="r")
        except (OSError, ValueError) as error:
            raise UnsupportedModelError(
                f"the GGUF file {file.path!r} can not be read ({error}). Start again with the path "
                "of the file as the model's name."
            ) from error


def _in_order(rows: Bytes, heads: int) -> Bytes:
    """Rows of each of `heads` heads from (pair, half) to (half, pair)."""
    if heads == 0:
        return rows
    return rows.reshape(heads, -1, 2, rows.shape[1]).swapaxes(1, 2).reshape(rows.shape)
