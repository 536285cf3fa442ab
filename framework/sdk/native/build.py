"""Built libraries in the cache directory: found by all that goes into them, or built."""

from __future__ import annotations

import hashlib
import os
import stat
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from framework.sdk.cache import cache_directory
from framework.sdk.native.compiler import INCLUDE, Compiler, find_compiler, processor
from framework.sdk.native.dynamic import open_library
from framework.sdk.native.errors import KernelsUnavailable


def built_library(name: str, source: Path, flags: Sequence[str]) -> Path:
    """The library of `source`, for this processor; compiled if it is not in the cache.

    Several processes may build it at once: each makes a file of its own, and the last one to be
    renamed stays. KernelsUnavailable where there is no compiler, where it fails, and where
    somebody else could have put the code there.
    """
    if sys.platform == "win32":
        raise KernelsUnavailable("compiled kernels are not built on Windows; use Linux or macOS.")
    compiler = find_compiler()
    try:
        key = _key(name, source, compiler, flags)
        root = cache_directory() / "kernels"
        directory = root / key
        library = directory / f"{name}.so"
        for own in (root, directory):
            own.mkdir(mode=0o700, parents=True, exist_ok=True)
            _check_own(own)
        if not library.exists():
            _build(compiler, source, library, flags)
        _check_own(library)
    except OSError as error:
        raise KernelsUnavailable(
            f"no place to keep the compiled kernels {name!r}: {error}. Set FRAMEWORK_CACHE_DIR to "
            "a directory that can be written."
        ) from error
    return library


def _build(compiler: Compiler, source: Path, library: Path, flags: Sequence[str]) -> None:
    """What can not be loaded, or might be lost with the machine's power, is not kept: a damaged
    library would be found by each later start."""
    handle, path = tempfile.mkstemp(prefix=f".{library.stem}-", suffix=".so", dir=library.parent)
    os.close(handle)
    own = Path(path)
    try:
        compiler.build(source, own, flags)
        own.chmod(0o700)
        open_library(own)
        with own.open("rb") as written:
            os.fsync(written.fileno())
        own.replace(library)
    finally:
        own.unlink(missing_ok=True)


def _key(name: str, source: Path, compiler: Compiler, flags: Sequence[str]) -> str:
    """A digest of all that decides on the built code. The processor is part of it: a home
    directory may be shared by machines that differ."""
    digest = hashlib.sha256()
    facts = (name, source.name, compiler.identity, *compiler.flags(), *flags, processor())
    for fact in facts:
        _add(digest, fact.encode())
    for directory in (INCLUDE, source.parent):
        for path in sorted(directory.glob("*.[ch]")):
            _add(digest, path.name.encode())
            _add(digest, path.read_bytes())
    return digest.hexdigest()[:32]


def _add(digest: hashlib._Hash, part: bytes) -> None:
    digest.update(len(part).to_bytes(8, "little"))
    digest.update(part)


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
