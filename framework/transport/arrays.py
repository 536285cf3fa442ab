"""How an array is described inside a message: a msgpack extension of a fixed layout.

    offset 0   uint8      dtype: index into DTYPE_NAMES; + 0x80 for a torch tensor
           1   uint8      number of dimensions
           2   uint32     FRAME: which frame of the message holds the elements; otherwise 0
           6   uint64[n]  shape
               bytes      INLINE: the elements; FILE: the file's name, ASCII; FRAME: nothing

Numbers are little-endian, elements lie in C order. The extension's code is the place of the
elements: INLINE, FRAME or FILE.
"""

from __future__ import annotations

import math
import struct
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hookspecs.errors import TransportError

__all__ = [
    "DTYPE_NAMES",
    "FILE",
    "FRAME",
    "INLINE",
    "NUMPY_DTYPES",
    "Array",
    "ArrayHead",
    "array_over",
    "column_of",
    "dtype_name",
    "pack_column",
    "pack_head",
    "unpack_head",
]

Array: TypeAlias = NDArray[Any]

INLINE: Final = 1
FRAME: Final = 2
FILE: Final = 3

NUMPY_DTYPES: Final = tuple(
    np.dtype(name)
    for name in (
        "bool",
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
        "float16",
        "float32",
        "float64",
    )
)
DTYPE_NAMES: Final = (*(dtype.name for dtype in NUMPY_DTYPES), "bfloat16")
"""Position is the code on the wire. numpy has no bfloat16: it is for torch tensors alone."""

_NAME_OF: Final = {dtype: dtype.name for dtype in NUMPY_DTYPES}
_CODES: Final = {name: code for code, name in enumerate(DTYPE_NAMES)}
_BFLOAT16: Final = _CODES["bfloat16"]
# What holds the elements of a code until they are a tensor.
_CARRIERS: Final = (*NUMPY_DTYPES, np.dtype("int16"))
_TORCH: Final = 0x80
_MAX_DIMENSIONS: Final = 32
_HEADS: Final = tuple(struct.Struct(f"<BBI{n}Q") for n in range(_MAX_DIMENSIONS + 1))
_COLUMN: Final = _HEADS[1]
_COLUMN_CODES: Final = {dtype: code for code, dtype in enumerate(NUMPY_DTYPES) if code}


class ArrayHead(NamedTuple):
    """What a message says about one array."""

    dtype: str
    """One of DTYPE_NAMES."""
    carrier: np.dtype[Any]
    """The numpy dtype of the elements' bytes; int16 for bfloat16."""
    is_torch: bool
    frame: int
    shape: tuple[int, ...]
    nbytes: int
    payload: memoryview


def dtype_name(array: Array) -> str:
    """The name of an array's dtype. Raises TransportError for one that can not be sent."""
    name = _NAME_OF.get(array.dtype)
    if name is None:
        raise TransportError(
            f"an array of dtype {array.dtype!s} (byte order {array.dtype.byteorder!r}) can not be "
            f"sent; allowed are {', '.join(DTYPE_NAMES[:-1])} in native byte order: convert it "
            "with astype"
        )
    return name


def pack_head(dtype: str, shape: tuple[int, ...], *, is_torch: bool, frame: int = 0) -> bytes:
    """The extension's bytes without the payload."""
    rank = len(shape)
    if rank > _MAX_DIMENSIONS:
        raise TransportError(
            f"an array with {rank} dimensions can not be sent; at most {_MAX_DIMENSIONS}: reshape "
            "it first"
        )
    return _HEADS[rank].pack(_CODES[dtype] | (_TORCH if is_torch else 0), rank, frame, *shape)


def unpack_head(data: memoryview) -> ArrayHead:
    """Reads an extension's bytes. Raises TransportError for anything `pack_head` can not make."""
    if len(data) < 6 or data[1] > _MAX_DIMENSIONS or len(data) < _HEADS[data[1]].size:
        raise TransportError(f"an array's description of {len(data)} bytes is malformed")
    head = _HEADS[data[1]]
    code, _, frame, *shape = head.unpack_from(data)
    is_torch = code >= _TORCH
    code &= ~_TORCH
    if code >= len(DTYPE_NAMES) or (code == _BFLOAT16 and not is_torch):
        raise TransportError(f"{code} is not the code of an array's dtype")
    carrier = _CARRIERS[code]
    return ArrayHead(
        dtype=DTYPE_NAMES[code],
        carrier=carrier,
        is_torch=is_torch,
        frame=frame,
        shape=tuple(shape),
        nbytes=math.prod(shape) * carrier.itemsize,
        payload=data[head.size :],
    )


def pack_column(array: Array) -> bytes | None:
    """The bytes of an INLINE extension for a numpy array of one dimension, not bool. None for any
    other one, which takes the long way, by `dtype_name` and `pack_head`."""
    code = _COLUMN_CODES.get(array.dtype)
    if code is None or array.ndim != 1:
        return None
    return _COLUMN.pack(code, 1, 0, len(array)) + array.tobytes()


def column_of(data: memoryview) -> Array | None:
    """The read-only array of an INLINE extension: numpy, one dimension, not bool. None for any
    other one, and for one that is malformed: those take the long way, by `unpack_head`."""
    if len(data) < _COLUMN.size:
        return None
    code, rank, _, length = _COLUMN.unpack_from(data)
    if rank != 1 or not 0 < code < len(NUMPY_DTYPES):
        return None
    dtype = NUMPY_DTYPES[code]
    if len(data) != _COLUMN.size + length * dtype.itemsize:
        return None
    column: Array = np.frombuffer(bytes(data[_COLUMN.size :]), dtype)
    return column


def array_over(head: ArrayHead, buffer: Any) -> Array:
    """A view of `buffer` with the head's shape, writable if the buffer is; a copy if the buffer
    is not aligned for the dtype."""
    size = memoryview(buffer).nbytes
    if size != head.nbytes:
        raise TransportError(
            f"an array of {head.dtype}{list(head.shape)} has {head.nbytes} bytes, the message "
            f"holds {size}"
        )
    try:
        array: Array = np.ndarray(head.shape, head.carrier, buffer)
    except (ValueError, OverflowError) as error:  # no element, but dimensions that overflow
        raise TransportError(f"{head.shape} is not an array's shape: {error}") from error
    if head.dtype == "bool" and array.view(np.uint8).max(initial=0) > 1:
        raise TransportError("an array of bool holds bytes other than 0 and 1")
    return array if array.flags.aligned else array.copy()
