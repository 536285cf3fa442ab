"""Large arrays between processes of one machine: files that are mapped, not copied.

Who owns a file:
- The sender creates it, writes it, and names it in exactly one message. It owns the file until
  that message is received: what could not be sent is removed with `codec.discard`.
- The receiver of the message maps the file and removes its name at once. From then on the memory
  lives exactly as long as the arrays that view it, and no crash of either side can leak it.
- A message that is never received leaves its files in the launch's directory, which is removed
  with the launch (`runtime_dir`).
So a message with files has one receiver; for several it is encoded once for each.

Only processes of one user write into the directory (mode 0700): a file's content is as
trustworthy as a message's.
"""

from __future__ import annotations

import mmap
import os
import re
import secrets
import stat
from pathlib import Path
from typing import Final

from hookspecs.errors import TransportError

__all__ = ["TensorStore"]

_TOKEN_BYTES: Final = 16
_PREFIX: Final = re.compile(r"[a-z0-9-]{1,64}")
_NAME: Final = re.compile(rf"tensor-{_PREFIX.pattern}-[0-9a-f]{{{2 * _TOKEN_BYTES}}}")


class TensorStore:
    """The files of arrays in one directory, `tensor-<prefix>-<token>`. All processes of a launch
    have a store of the same directory. Any thread.

    directory: exists; on a file system in memory where there is one
    prefix: whose files: the process that puts them; lower-case letters, digits and dashes
    min_bytes: arrays of at least this size travel as files
    """

    def __init__(self, directory: Path, *, prefix: str, min_bytes: int = 1 << 20) -> None:
        if not _PREFIX.fullmatch(prefix):
            raise TransportError(
                f"{prefix!r} is not a prefix of tensor files: 1 to 64 lower-case letters, digits "
                "and dashes"
            )
        if not min_bytes >= 1:
            raise TransportError(f"min_bytes is {min_bytes}; at least 1: a file has content")
        self.min_bytes = min_bytes
        self._directory = directory
        self._prefix = prefix

    def put(self, data: memoryview) -> str:
        """Writes bytes (one dimension, format B) into a new file and gives its name."""
        name = f"tensor-{self._prefix}-{secrets.token_hex(_TOKEN_BYTES)}"
        path = self._directory / name
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        try:
            descriptor = os.open(path, flags, 0o600)
            try:
                written = 0
                while written < len(data):
                    written += os.write(descriptor, data[written:])
            except BaseException:
                os.unlink(path)
                raise
            finally:
                os.close(descriptor)
        except OSError as error:
            raise TransportError(
                f"an array of {len(data)} bytes can not be written to {self._directory}: {error}; "
                "give the file system more space, or send less at a time"
            ) from error
        return name

    def take(self, name: str, nbytes: int, *, writable: bool) -> mmap.mmap:
        """Maps a file that another process put, and removes its name. Writing into a writable
        mapping changes this process's pages only.

        Raises TransportError unless it is a regular file of this user with just that size.
        """
        path = self._path(name)
        # A pipe that someone put there must not block.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
        try:
            descriptor = os.open(path, flags)
            try:
                status = os.fstat(descriptor)
                _check(path, status, nbytes)
                access = mmap.ACCESS_COPY if writable else mmap.ACCESS_READ
                mapping = mmap.mmap(descriptor, nbytes, access=access)
            finally:
                os.close(descriptor)
            os.unlink(path)
        except (OSError, ValueError, OverflowError) as error:
            raise TransportError(f"the tensor file {path} can not be mapped: {error}") from error
        return mapping

    def remove(self, name: str) -> None:
        """Removes a file that nobody will take; one that is gone already is fine."""
        path = self._path(name)
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise TransportError(f"the tensor file {path} can not be removed: {error}") from error

    def _path(self, name: str) -> Path:
        if not _NAME.fullmatch(name):
            raise TransportError(f"{name!r} is not the name of a tensor file")
        return self._directory / name


def _check(path: Path, status: os.stat_result, nbytes: int) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise TransportError(f"{path} is not a regular file")
    if status.st_uid != os.getuid():
        raise TransportError(f"{path} belongs to user {status.st_uid}, not to {os.getuid()}")
    if status.st_size != nbytes or nbytes < 1:
        raise TransportError(
            f"{path} has {status.st_size} bytes; its message says that it has {nbytes}"
        )
