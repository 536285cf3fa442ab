"""Writes of all connections, made together.

A write to a socket whose reader sleeps wakes it, which costs more than the write itself. Where many
streams get a chunk in one turn of the event loop, and one after the other, the reader would be
woken for each. Event loop of the front end.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

__all__ = ["BatchedTransport", "Writes"]

MAX_HELD: Final = 64 * 1024
"""Bytes that a connection holds back at most: with more it is written to at once, so that the
transport sees a client that does not read."""


class Writes:
    """Those that are due when the tasks that can run have run."""

    def __init__(self) -> None:
        self._due: list[BatchedTransport] = []

    def add(self, transport: BatchedTransport) -> None:
        """`transport` has something to write; it has not been added since it was last flushed."""
        if not self._due:
            asyncio.get_running_loop().call_soon(self._write)
        self._due.append(transport)

    def _write(self) -> None:
        due, self._due = self._due, []
        for transport in due:
            transport.flush()


class BatchedTransport(asyncio.Transport):
    """What uvicorn needs of a transport; everything but writes goes to `transport` as it is."""

    def __init__(self, transport: asyncio.Transport, writes: Writes) -> None:
        super().__init__()
        self._transport = transport
        self._writes = writes
        self._held: list[bytes] = []
        self._size = 0

    def write(self, data: Any) -> None:
        """Written with the others of this turn, pieces of one connection as one."""
        if not self._held:
            self._writes.add(self)
        self._held.append(data)
        self._size += len(data)
        if self._size > MAX_HELD:
            self._write_held()

    def flush(self) -> None:
        """Write what is held back."""
        if self._held:
            self._write_held()

    def _write_held(self) -> None:
        held, self._held, self._size = self._held, [], 0
        if not self._transport.is_closing():
            self._transport.write(held[0] if len(held) == 1 else b"".join(held))

    def close(self) -> None:
        self.flush()
        self._transport.close()

    def abort(self) -> None:
        self._held, self._size = [], 0
        self._transport.abort()

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()
