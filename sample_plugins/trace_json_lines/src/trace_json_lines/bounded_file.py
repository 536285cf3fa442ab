"""`BoundedFile`: appends to a file that processes share, and starts a new one when it is full."""

from __future__ import annotations

import fcntl
import os
import stat

__all__ = ["BoundedFile"]

# O_NONBLOCK: to open a pipe that nobody reads would otherwise wait for a reader.
_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
_MODE = 0o600


class BoundedFile:
    """A file of at most `max_bytes`, and the full one before it as PATH.1.

    A lock on the file makes rotation safe where several front-end processes write to it: each
    sees, before it writes, whether another has rotated. All methods raise OSError. One thread at
    a time.
    """

    def __init__(self, path: str, max_bytes: int) -> None:
        """Opens the file, or makes it, for its owner only. OSError also for what is no regular
        file: that could not be rotated."""
        self._path = path
        self._max_bytes = max_bytes
        self._fd = self._open()
        if not stat.S_ISREG(os.fstat(self._fd).st_mode):
            os.close(self._fd)
            raise OSError(f"{path!r} is not a regular file")

    def append(self, data: bytes) -> None:
        """In one piece; in a file of its own if there is no room. Data larger than a file has it
        to itself."""
        try:
            while (size := self._lock_current()) and size + len(data) > self._max_bytes:
                os.replace(self._path, self._path + ".1")
            written = os.write(self._fd, data)
            if written != len(data):
                raise OSError(f"wrote {written} of {len(data)} bytes to {self._path!r}")
        finally:
            fcntl.flock(self._fd, fcntl.LOCK_UN)

    def close(self) -> None:
        """Safe to call twice."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _lock_current(self) -> int:
        """Lock the file that has the path now; its size. Before this one had the lock, another
        process may have moved the file, or whoever tidies up may have."""
        while True:
            fcntl.flock(self._fd, fcntl.LOCK_EX)
            mine = os.fstat(self._fd)
            try:
                if os.path.samestat(mine, os.stat(self._path)):
                    return mine.st_size
            except FileNotFoundError:
                pass
            fd = self._open()
            os.close(self._fd)  # which gives its lock back
            self._fd = fd

    def _open(self) -> int:
        return os.open(self._path, _FLAGS, _MODE)
