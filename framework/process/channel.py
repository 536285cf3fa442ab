"""The channel between a parent process and its child: a socket pair that the child inherits.

Messages are msgpack behind a length of four bytes, little endian. The channel is also the sign of
life of both sides: the system closes it when a process ends, however it ends.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import threading
import weakref
from typing import Any, Final, Generic, TypeVar

import msgspec

from hookspecs.errors import TransportError

__all__ = ["MAX_MESSAGE_BYTES", "Channel"]

MAX_MESSAGE_BYTES: Final = 1 << 26
_HEAD: Final = struct.Struct("<I")

Received = TypeVar("Received")
_channels: weakref.WeakSet[Channel[Any]] = weakref.WeakSet()


def _forget_in_fork() -> None:
    """Else a fork would keep channels open, and children alive, when this process has ended."""
    for channel in list(_channels):
        channel.forget()


os.register_at_fork(after_in_child=_forget_in_fork)


class Channel(Generic[Received]):
    """One side. `send` may be called from any thread, `receive` from one."""

    def __init__(self, sock: socket.socket, receives: Any) -> None:
        """`receives`: the union of the messages that the other side sends."""
        self._socket = sock
        self._decoder: msgspec.msgpack.Decoder[Received] = msgspec.msgpack.Decoder(receives)
        self._lock = threading.Lock()

        _channels.add(self)

    def forget(self) -> None:
        """Close this process's copy alone: in a fork, which is not the one at this end."""
        self._socket.close()

    def send(self, message: msgspec.Struct) -> bool:
        """Send a message; False when the other side is gone. TransportError when it is too
        long."""
        data = msgspec.msgpack.encode(message)
        if len(data) > MAX_MESSAGE_BYTES:
            raise TransportError(
                f"a {type(message).__name__} message has {len(data)} bytes; at most "
                f"{MAX_MESSAGE_BYTES} can be sent to a child process"
            )
        try:
            with self._lock:
                self._socket.sendall(_HEAD.pack(len(data)) + data)
        except OSError:
            return False
        return True

    def receive(self) -> Received | None:
        """Wait for a message; None when the other side is gone. TransportError when what came
        can not be read."""
        head = self._read(_HEAD.size)
        if head is None:
            return None
        (size,) = _HEAD.unpack(head)
        if size > MAX_MESSAGE_BYTES:
            raise TransportError(f"a message of {size} bytes was announced; the other side is lost")
        data = self._read(size)
        if data is None:
            return None
        try:
            return self._decoder.decode(data)
        except msgspec.DecodeError as error:
            raise TransportError(f"a message between parent and child is wrong: {error}") from error

    def close(self) -> None:
        """Wakes a `receive` that waits, here and on the other side."""
        with contextlib.suppress(OSError):  # the other side was first
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _read(self, size: int) -> bytes | None:
        data = bytearray()
        while len(data) < size:
            try:
                piece = self._socket.recv(min(size - len(data), 1 << 20))
            except OSError:
                return None
            if not piece:
                return None
            data += piece
        return bytes(data)
