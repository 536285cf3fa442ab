"""`ForwardReader`: a stream that can not be made to cost more than its bounds."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable
from typing import IO

__all__ = ["MAX_READ", "ForwardReader"]

MAX_READ = 4 << 20
"""Bytes of one read. tarfile reads an extended header as a whole, however long it says it is."""


class ForwardReader(io.RawIOBase):
    """What tarfile reads from. Forwards only: to go back in a compressed stream means to
    decompress it again from its beginning."""

    def __init__(self, stream: IO[bytes], max_bytes: int, excess: Callable[[], Exception]) -> None:
        """`excess` makes what is raised when there are more than `max_bytes`."""
        self._stream = stream
        self._left = max_bytes
        self._excess = excess
        self._position = 0
        self.last = b""
        """What the last read gave."""

    def read(self, size: int = -1, /) -> bytes:
        """Up to `size` bytes, at least one before the end. tarfile.ReadError if `size` is not
        within 0 and MAX_READ."""
        if not 0 <= size <= MAX_READ:
            raise tarfile.ReadError(f"a header of {size} bytes")
        self.last = self._stream.read(size)
        self._position += len(self.last)
        self._left -= len(self.last)
        if self._left < 0:
            raise self._excess()
        return self.last

    def tell(self) -> int:
        """Bytes read."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Skips forward. tarfile.ReadError for a way back."""
        if whence != io.SEEK_SET or offset < self._position:
            raise tarfile.ReadError("members that overlap")
        while self._position < offset and self.read(min(offset - self._position, MAX_READ)):
            pass
        return self._position
