"""Where the sockets and the tensor files of one launch lie.

Two directories with one name, `framework-<uid>-<token>`, mode 0700: one for sockets below
XDG_RUNTIME_DIR or the directory for temporary files, one for tensors in shared memory. The
launching process holds a lock (flock) on each for as long as it lives, and the system releases it
however the process ends: a directory that can be locked belongs to nobody and is swept at the
next start. It is the directory itself that is locked, so no lock file can be there without it, or
be missing.
"""

from __future__ import annotations

import fcntl
import logging
import os
import re
import secrets
import shutil
import stat
import tempfile
import time
import weakref
from pathlib import Path
from typing import Final

from hookspecs.errors import TransportError

__all__ = ["RuntimeDir", "sweep"]

logger = logging.getLogger("framework.transport")

SHARED_MEMORY: Final = Path("/dev/shm")
"""A file system in memory, where there is one."""

RELEASE_S: Final = 1.0
"""Seconds that a dying process may take to release its lock."""

_TENSORS: Final = "tensors"
_TOKEN_BYTES: Final = 8
_NAME: Final = re.compile(rf"framework-{os.getuid()}-[0-9a-f]{{{2 * _TOKEN_BYTES}}}")
_SOCKET_PATH_BYTES: Final = 107  # sun_path of unix(7) holds 108 with the final zero
_SOCKET_NAME_BYTES: Final = 24
_ATTEMPTS: Final = 16
_OPEN: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW


_made: weakref.WeakSet[RuntimeDir] = weakref.WeakSet()


class RuntimeDir:
    """The directories of one launch; from `create` or `open`."""

    sockets: Path
    tensors: Path

    def __init__(self, sockets: Path, tensors: Path, creator: int | None) -> None:
        self.sockets = sockets
        self.tensors = tensors
        self._creator = creator
        self._locks: dict[Path, int] = {}
        _made.add(self)

    @classmethod
    def create(cls) -> RuntimeDir:
        """New directories, locked until this process ends or removes them.

        Raises TransportError if there is no place for them.
        """
        base = _socket_base()
        shared = base != SHARED_MEMORY and _writable(SHARED_MEMORY)
        for _ in range(_ATTEMPTS):
            name = f"framework-{os.getuid()}-{secrets.token_hex(_TOKEN_BYTES)}"
            tensors = SHARED_MEMORY / name if shared else base / name / _TENSORS
            made = cls(base / name, tensors, os.getpid())
            try:
                if made._make():
                    return made
            except OSError as error:
                made.remove()
                raise TransportError(
                    f"no directory can be made for this launch's sockets and tensors: {error}; set "
                    "TMPDIR to a directory that can be written"
                ) from error
            made.remove()
        raise TransportError(f"each of {_ATTEMPTS} new directories in {base} was removed at once")

    @classmethod
    def open(cls, path: Path) -> RuntimeDir:
        """Those of a running or dead launch, by the `sockets` path, in any process of the user.

        Raises TransportError unless they are private directories of this user.
        """
        if not _NAME.fullmatch(path.name):
            raise TransportError(f"{path} does not have the name of a runtime directory")
        _check_private(path)
        within = path / _TENSORS
        tensors = within if os.path.lexists(within) else SHARED_MEMORY / path.name
        _check_private(tensors)
        return cls(path, tensors, None)

    def address(self, name: str) -> str:
        """The address of a socket in this directory, `ipc://…`.

        name: 1 to 24 letters, digits, dashes and underscores
        """
        if not re.fullmatch(rf"[A-Za-z0-9_-]{{1,{_SOCKET_NAME_BYTES}}}", name):
            raise TransportError(
                f"{name!r} is not a name for a socket: 1 to {_SOCKET_NAME_BYTES} letters, digits, "
                "dashes and underscores"
            )
        return f"ipc://{self.sockets / name}"

    def remove(self) -> None:
        """Removes both directories; what is gone already is fine.

        In another process than the creator it waits for a second: a process that dies closes its
        channels and its lock one after the other. Raises TransportError while the creator lives,
        and where something can not be removed.
        """
        try:
            for directory in (self.tensors, self.sockets):
                if self._creator != os.getpid():
                    # What lies within the directory for sockets goes with it, under its lock.
                    if directory.parent != self.sockets:
                        _remove_released(directory)
                elif (lock := self._locks.pop(directory, None)) is not None:
                    try:
                        _remove_tree(directory)
                    finally:
                        os.close(lock)
        except BlockingIOError as error:
            raise TransportError(
                f"{self.sockets} can not be removed: the process that launched it still runs"
            ) from error
        except OSError as error:
            raise TransportError(f"{self.sockets} can not be removed: {error}") from error

    def _make(self) -> bool:
        """Whether both directories are there and locked. A sweep that comes between making and
        locking takes one away; then this is tried again under another name."""
        for directory in (self.sockets, self.tensors):
            if directory.parent == self.sockets:
                directory.mkdir(mode=0o700)
                continue
            try:
                directory.mkdir(mode=0o700)
            except FileExistsError:
                return False
            try:
                lock = os.open(directory, _OPEN)
            except FileNotFoundError:
                return False
            self._locks[directory] = lock
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            if not _is_at(directory, lock):
                return False
        return True


def sweep() -> list[Path]:
    """Removes this user's directories whose launching process has died, and gives their paths.
    Follows no link. What can not be removed is logged and stays."""
    removed = []
    for base in _bases():
        try:
            names = [name for name in sorted(os.listdir(base)) if _NAME.fullmatch(name)]
        except OSError as error:
            logger.warning("%s can not be searched for stale directories: %s", base, error)
            continue
        for name in names:
            try:
                if _remove_unlocked(base / name):
                    removed.append(base / name)
            except BlockingIOError:
                continue  # its launch runs
            except OSError as error:
                logger.warning("the stale directory %s stays: %s", base / name, error)
    return removed


def _bases() -> list[Path]:
    candidates = [Path(tempfile.gettempdir()).absolute(), SHARED_MEMORY]
    if runtime := os.environ.get("XDG_RUNTIME_DIR"):
        candidates.append(Path(runtime))
    return [base for base in dict.fromkeys(candidates) if base.is_absolute() and base.is_dir()]


def _socket_base() -> Path:
    runtime = Path(os.environ.get("XDG_RUNTIME_DIR", ""))
    if runtime.is_absolute() and _is_private(runtime) and _writable(runtime) and _fits(runtime):
        return runtime
    base = Path(tempfile.gettempdir()).absolute()
    if not _fits(base):
        raise TransportError(
            f"{base} is too long for sockets: with their names, paths would have more than "
            f"{_SOCKET_PATH_BYTES} bytes; set TMPDIR to a shorter directory"
        )
    return base


def _fits(base: Path) -> bool:
    directory = base / f"framework-{os.getuid()}-{'0' * 2 * _TOKEN_BYTES}"
    return len(os.fsencode(directory)) + 1 + _SOCKET_NAME_BYTES <= _SOCKET_PATH_BYTES


def _writable(directory: Path) -> bool:
    return directory.is_dir() and os.access(directory, os.W_OK | os.X_OK)


def _is_private(directory: Path) -> bool:
    try:
        status = directory.lstat()
    except OSError:
        return False
    own = status.st_uid == os.getuid() and not status.st_mode & 0o077
    return own and stat.S_ISDIR(status.st_mode)


def _check_private(directory: Path) -> None:
    if not _is_private(directory):
        raise TransportError(
            f"{directory} is not a directory of user {os.getuid()} alone (mode 0700)"
        )


def _is_at(path: Path, descriptor: int) -> bool:
    """Whether the open directory is still what the path names."""
    try:
        return os.path.samestat(path.lstat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _remove_unlocked(path: Path) -> bool:
    """Removes a directory of this user that no process has locked; False if there is none.
    Raises BlockingIOError if one has, OSError if something can not be removed."""
    try:
        status = path.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
            return False
        lock = os.open(path, _OPEN)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Who held the lock until now may have removed it.
        if not _is_at(path, lock) or os.fstat(lock).st_uid != os.getuid():
            return False
        _remove_tree(path)
    finally:
        os.close(lock)
    return True


def _remove_released(path: Path) -> None:
    """Like `_remove_unlocked`, after some time for the lock's release."""
    deadline = time.monotonic() + RELEASE_S
    while True:
        try:
            _remove_unlocked(path)
            return
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise
            time.sleep(0.01)


def _remove_tree(path: Path) -> None:
    while os.path.lexists(path):
        try:
            shutil.rmtree(path)
        except FileNotFoundError:
            continue  # a receiver removed a tensor file at the same time


def _unlock_in_fork() -> None:
    """A fork of the launching process must not hold the lock when that has died."""
    for made in list(_made):
        while made._locks:
            os.close(made._locks.popitem()[1])


os.register_at_fork(after_in_child=_unlock_in_fork)
