"""Objects to frames and back: msgpack for the structure, raw frames for the arrays.

The first frame is the msgpack of the object. An array of at least 4096 bytes is a frame of its
own, sent from and viewed in place; one of at least `TensorStore.min_bytes` is a file where there
is a store; smaller ones lie within the msgpack, where copying them costs less than a frame.
Nothing is ever unpickled.

An encoder or decoder is made once and used by one thread at a time: building one costs more than
using it.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Final, Generic, TypeAlias, TypeVar

import msgspec
import numpy as np

from framework.transport.arrays import (
    FILE,
    FRAME,
    INLINE,
    NUMPY_DTYPES,
    Array,
    array_over,
    column_of,
    dtype_name,
    pack_column,
    pack_head,
    unpack_head,
)
from framework.transport.tensor_ipc import TensorStore
from framework.transport.torch_tensors import array_of, is_tensor, tensor_of
from hookspecs.errors import TransportError

__all__ = ["Buffer", "Decoder", "Encoder", "discard"]

logger = logging.getLogger("framework.transport")

Buffer: TypeAlias = bytes | memoryview
"""A frame, as zmq gives it with copy=True, or its `Frame.buffer`."""
T = TypeVar("T")

_MIN_FRAME_BYTES: Final = 4096
_DTYPES: Final = {dtype.name: dtype for dtype in NUMPY_DTYPES}
# What msgspec and the conversions it calls raise for values that they can not take.
_REFUSALS: Final = (
    msgspec.MsgspecError,
    TypeError,
    ValueError,
    OverflowError,
    RecursionError,
    MemoryError,
)


class Encoder:
    """Makes frames of objects that msgspec knows, numpy arrays (bool, int8 to int64, uint8 to
    uint64, float16, float32, float64) and torch tensors (these and bfloat16; copied to the host).

    max_bytes: of all frames of a message together; files are not counted
    """

    def __init__(
        self, tensor_store: TensorStore | None = None, *, max_bytes: int | None = None
    ) -> None:
        self._store = tensor_store
        self._max_bytes = max_bytes
        self._encoder = msgspec.msgpack.Encoder(enc_hook=self._encode_array)
        self._frames: list[Buffer] = []
        self._files: list[str] = []

    def encode(self, obj: object) -> list[Buffer]:
        """The frames of one message for one receiver. They view the object's arrays: these must
        not change until the frames are sent.

        Raises TransportError for what can not be sent; then nothing is left behind.
        """
        self._frames, self._files = [b""], []
        frames = self._frames
        try:
            frames[0] = self._encoder.encode(obj)
            if self._max_bytes is not None:
                _check_size(frames, self._max_bytes)
        except BaseException as error:
            for name in self._files:
                assert self._store is not None
                self._store.remove(name)
            if isinstance(error, _REFUSALS):
                raise TransportError(
                    f"a {type(obj).__name__} can not be encoded: {error}"
                ) from error
            raise
        finally:
            self._frames, self._files = [], []
        return frames

    def _encode_array(self, obj: object) -> msgspec.msgpack.Ext:
        if type(obj) is np.ndarray:
            if obj.nbytes < _MIN_FRAME_BYTES:
                column = pack_column(obj)
                if column is not None:
                    return msgspec.msgpack.Ext(INLINE, column)
            return self._place(dtype_name(obj), obj, is_torch=False)
        if is_tensor(obj):
            dtype, array = array_of(obj)  # type: ignore[arg-type]
            return self._place(dtype, array, is_torch=True)
        raise TransportError(
            f"an object of type {type(obj).__module__}.{type(obj).__qualname__} can not be sent; "
            "allowed are msgspec structs, plain Python values, numpy arrays (no subclass) and "
            "torch tensors"
        )

    def _place(self, dtype: str, array: Array, *, is_torch: bool) -> msgspec.msgpack.Ext:
        nbytes, shape = array.nbytes, array.shape
        if nbytes < _MIN_FRAME_BYTES:
            head = pack_head(dtype, shape, is_torch=is_torch)
            return msgspec.msgpack.Ext(INLINE, head + array.tobytes())
        data = np.ascontiguousarray(array).data.cast("B")
        if self._store is not None and nbytes >= self._store.min_bytes:
            try:
                name = self._store.put(data)
            except TransportError as error:
                logger.warning("%s; it is sent through the socket instead", error)
            else:
                self._files.append(name)
                head = pack_head(dtype, shape, is_torch=is_torch)
                return msgspec.msgpack.Ext(FILE, head + name.encode())
        head = pack_head(dtype, shape, is_torch=is_torch, frame=len(self._frames))
        self._frames.append(data)
        return msgspec.msgpack.Ext(FRAME, head)


class Decoder(Generic[T]):
    """Makes objects of one type of frames.

    Arrays come as read-only numpy arrays that view their frame or file, torch tensors as
    contiguous CPU tensors of their own memory.

    head: the type is a part of what was sent: arrays in its `msgspec.Raw` fields, which have
        decoders of their own, and in fields that it leaves out are not asked for
    """

    def __init__(
        self, type_: type[T], tensor_store: TensorStore | None = None, *, head: bool = False
    ) -> None:
        self._store = tensor_store
        self._head = head
        self._type_name = getattr(type_, "__name__", str(type_))
        self._decoder = msgspec.msgpack.Decoder(
            type_, ext_hook=self._decode_array, dec_hook=_check_column
        )
        self._frames: list[Buffer | None] = []

    def decode(self, frames: Sequence[Buffer | msgspec.Raw]) -> T:
        """The object. Raises TransportError, and nothing else, for what no encoder would send;
        then files that the message names are removed."""
        if not frames:
            raise TransportError("a message has at least one frame, this one has none")
        self._frames = [None, *frames[1:]]
        try:
            obj = self._decoder.decode(frames[0])
            unused = len(self._frames) - self._frames.count(None)
            if unused and not self._head:
                raise TransportError(
                    f"{unused} of the message's {len(frames)} frames are referred to by nothing"
                )
        except (TransportError, *_REFUSALS) as error:
            if self._store is not None:
                discard(frames, self._store)
            raise TransportError(f"not a message of {self._type_name}: {error}") from error
        finally:
            self._frames = []
        return obj

    def _decode_array(self, code: int, data: memoryview) -> Any:
        if code not in (INLINE, FRAME, FILE):
            raise TransportError(f"{code} is not the code of a known extension")
        if code == INLINE:
            column = column_of(data)
            if column is not None:
                return column
        head = unpack_head(data)
        buffer: Any
        if code == FRAME:
            buffer = self._take_frame(head.frame)
        elif code == INLINE:
            buffer = bytes(head.payload)
        else:
            if self._store is None:
                raise TransportError("an array lies in a file, and this end has no tensor store")
            name = bytes(head.payload).decode("ascii")
            buffer = self._store.take(name, head.nbytes, writable=head.is_torch)
        if head.is_torch and code != FILE:
            # torch has no read-only tensors, and whoever has the frame must not see writes.
            buffer = bytearray(buffer)
        array = array_over(head, buffer)
        if head.is_torch:
            return tensor_of(array, head.dtype)
        array.setflags(write=False)
        return array

    def _take_frame(self, index: int) -> Buffer:
        frame = self._frames[index] if index < len(self._frames) else None
        if frame is None:
            raise TransportError(
                f"an array refers to frame {index}; the message has {len(self._frames)} frames, "
                "and each after the first holds one array"
            )
        self._frames[index] = None
        return frame


def discard(frames: Sequence[Buffer | msgspec.Raw], tensor_store: TensorStore) -> None:
    """Removes the files of a message that was not sent, or not decoded, or only in part."""

    def remove(code: int, data: memoryview) -> None:
        if code == FILE:
            tensor_store.remove(bytes(unpack_head(data).payload).decode("ascii"))

    try:
        msgspec.msgpack.decode(frames[0], ext_hook=remove)
    except (TransportError, *_REFUSALS) as error:
        logger.warning("files of a malformed message may stay until the launch ends: %s", error)


def _check_column(expected: type, value: object) -> Any:
    """Fields of hookspecs.types.columns: an array of that dtype with one dimension. To a
    ValueError msgspec adds which field it is."""
    dtype = getattr(expected, "dtype", None)
    if not isinstance(dtype, str):
        raise ValueError(f"no decoder knows how to make a {expected.__qualname__}")
    if type(value) is not np.ndarray:
        raise ValueError(f"expected a column of {dtype}, got {type(value).__name__}")
    if value.dtype != _DTYPES[dtype] or value.ndim != 1:
        raise ValueError(
            f"expected a column of {dtype}, got an array of {value.dtype}{list(value.shape)}"
        )
    return value


def _check_size(frames: Sequence[Buffer], max_bytes: int) -> None:
    size = sum(map(len, frames))
    if size > max_bytes:
        raise TransportError(
            f"a message of {size} bytes can not be sent; at most {max_bytes} "
            "(engine.max_message_bytes): raise the limit, or send less at a time"
        )
