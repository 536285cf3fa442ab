"""Built libraries in the cache directory: found by all that goes into them, or built."""

from __future__ import annotations

import hashlib
import logging
import os
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from framework.sdk.cache import cache_directory
from framework.sdk.native import kept
from framework.sdk.native.compiler import INCLUDE, Compiler, find_compiler, machine_flags, processor
from framework.sdk.native.dynamic import open_library
from framework.sdk.native.errors import KernelsUnavailable

logger = logging.getLogger("framework.sdk")


def built_library(name: str, source: Path, flags: Sequence[str]) -> Path:
    """The library of `source`, for this processor; compiled if it is not in the cache, or was
    damaged there.

    Several processes may build it at once: each makes a file of its own, and the last one to be
    renamed stays. KernelsUnavailable where there is no compiler, where it fails, and where
    somebody else could have put the code there. Without a compiler, what another one has built
    of the same source for this processor is taken.
    """
    if sys.platform == "win32":
        raise KernelsUnavailable("compiled kernels are not built on Windows; use Linux or macOS.")
    try:
        root, code = cache_directory() / "kernels", _code_key(name, source, flags)
        try:
            compiler = find_compiler()
        except KernelsUnavailable:
            # An image that was made with a compiler may run without one.
            for directory in sorted(root.glob(f"{code}-*")):
                library = _kept(name, root, directory)
                if library is not None:
                    return library
            raise
        directory = root / f"{code}-{_digest([compiler.identity.encode()])}"
        library = _kept(name, root, directory)
        return library or _build(name, compiler, source, directory, flags)
    except OSError as error:
        raise KernelsUnavailable(
            f"no place to keep the compiled kernels {name!r}: {error}. Set FRAMEWORK_CACHE_DIR to "
            "a directory that can be written."
        ) from error


def _kept(name: str, root: Path, directory: Path) -> Path | None:
    kept.own_directory(root)
    kept.own_directory(directory)
    return kept.kept_library(name, directory)


def _build(
    name: str, compiler: Compiler, source: Path, directory: Path, flags: Sequence[str]
) -> Path:
    """What can not be loaded is not kept: it would be found by each later start."""
    handle, path = tempfile.mkstemp(prefix=f".{name}-", suffix=".so", dir=directory)
    own = Path(path)
    try:
        now = os.fstat(handle).st_mtime
        os.close(handle)
        kept.remove_stale(directory.parent, now)
        logger.info(
            "compiling the kernels %r once for this processor, up to half a minute; kept in %s",
            name,
            directory.parent,
        )
        begin = time.monotonic()
        compiler.build(source, own, flags)
        own.chmod(0o700)
        open_library(own)
        library = kept.keep(name, own, directory)
        logger.info("compiled the kernels %r in %.1f s", name, time.monotonic() - begin)
        return library
    finally:
        own.unlink(missing_ok=True)


def _code_key(name: str, source: Path, flags: Sequence[str]) -> str:
    """A digest of all that decides on the built code but the compiler. The processor is part of
    it: a home directory may be shared by machines that differ."""
    facts = (name, source.name, *machine_flags(), *flags, processor())
    parts = [fact.encode() for fact in facts]
    for directory in (INCLUDE, source.parent):
        for path in sorted(directory.glob("*.[ch]")):
            parts += [path.name.encode(), path.read_bytes()]
    return _digest(parts)


def _digest(parts: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.hexdigest()[:32]
