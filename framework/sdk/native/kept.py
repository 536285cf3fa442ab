"""What is kept in the cache directory: libraries under a digest of what is in them."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import stat
from pathlib import Path

from framework.sdk.native.errors import KernelsUnavailable

_STALE_S = 3600.0
"""Far longer than a compiler may take."""

logger = logging.getLogger("framework.sdk")


def own_directory(path: Path) -> None:
    """Made if it is not there. KernelsUnavailable if others can write in it."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    _check_own(path)


def kept_library(name: str, directory: Path) -> Path | None:
    """The library in the directory that is as it was built; None if there is none, which is
    logged where it was damaged: a process that calls such code dies of SIGBUS or SIGSEGV.

    A damaged file stays until a build takes its place: were it removed, that might be what
    another process has just put there.
    """
    damaged = None
    for path in sorted(directory.glob("[!.]*.so")):
        _check_own(path)
        if path.name == _file_name(name, path):
            return path
        damaged = path
    if damaged is not None:
        logger.warning(
            "the kernels %r do not have the digest that is in their name: they are damaged, and "
            "compiled again",
            str(damaged),
        )
    return None


def keep(name: str, built: Path, directory: Path) -> Path:
    """Gives the built file its name in the directory, in one step."""
    return built.replace(directory / _file_name(name, built))


def remove_stale(root: Path, now: float) -> None:
    """Removes what processes that were killed during a build have left in directories of `root`.
    `now` is the time of the disk, which may be another machine's."""
    for path in root.glob("*/.*.so"):
        # It may be gone: its build has ended, or another process was faster. It may lie where only
        # another user removes files. Neither is a reason not to build.
        with contextlib.suppress(OSError):
            if now - path.lstat().st_mtime > _STALE_S:
                path.unlink()


def _file_name(name: str, file: Path) -> str:
    with file.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    return f"{name}-{digest[:32]}.so"


def _check_own(path: Path) -> None:
    """What is loaded runs with all rights of this user, so nobody else may write there."""
    state = path.lstat()
    own = state.st_uid == os.geteuid() and not stat.S_ISLNK(state.st_mode)
    if not own or state.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise KernelsUnavailable(
            f"{str(path)!r} belongs to another user or can be written by others (mode "
            f"{stat.filemode(state.st_mode)}, user {state.st_uid}): code is not loaded from "
            "there. Remove it, or set FRAMEWORK_CACHE_DIR to a directory of your own."
        )
