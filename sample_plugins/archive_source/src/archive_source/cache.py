"""Where unpacked archives are kept, and who unpacks when several want the same one."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock, Timeout
from hookspecs.errors import ModelNotFoundError

__all__ = ["unpacked_once"]

_LAYOUT = 1
"""Part of every name; another number when what is unpacked changes."""


def unpacked_once(
    archive: Path,
    root: Path,
    unpack: Callable[[Path], None],
    progress: Callable[[str, float], None],
) -> Path:
    """The directory below `root` with what `unpack` writes for the archive; called at most once.

    It is named by path, size and time of the archive, not by its content: an archive has many
    gigabytes, and to read them all at every start would take longer than to load the model. So a
    file that is replaced is unpacked again, and one that is changed with all three kept is not.

    Only one process unpacks an archive at a time; others wait. The directory gets its name when
    it is complete. ModelNotFoundError when the archive changed meanwhile; OSError.
    """
    root.mkdir(parents=True, exist_ok=True)
    key = _key(archive)
    target = root / key
    if target.is_dir():
        return target
    lock = FileLock(root / f"{key}.lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        progress(f"waiting for another process to unpack {archive.name}", 0.0)
        lock.acquire()
    try:
        if not target.is_dir():
            _make(archive, target, unpack)
    finally:
        lock.release()
    return target


def _key(archive: Path) -> str:
    stat = archive.stat()
    text = f"{_LAYOUT} {stat.st_size} {stat.st_mtime_ns} ".encode() + os.fsencode(archive)
    return hashlib.sha256(text).hexdigest()[:32]


def _make(archive: Path, target: Path, unpack: Callable[[Path], None]) -> None:
    """The caller has the lock, so parts that lie there are of a process that was killed."""
    prefix = f"{target.name}.tmp-"
    for part in target.parent.glob(f"{prefix}*"):
        shutil.rmtree(part)
    temporary = Path(tempfile.mkdtemp(prefix=prefix, dir=target.parent))
    try:
        unpack(temporary)
        if _key(archive) != target.name:
            raise ModelNotFoundError(
                f"{str(archive)!r} changed while it was unpacked. Start again when it is complete."
            )
        temporary.rename(target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
