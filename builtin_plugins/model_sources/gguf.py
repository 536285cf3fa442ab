"""The model source `gguf`: a GGUF file, converted once and kept in the user's cache."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from filelock import FileLock, Timeout

from builtin_plugins.model_sources.directory import refuse_revision
from builtin_plugins.model_sources.gguf_cache import file_digest
from builtin_plugins.model_sources.gguf_record import point_to_file
from framework.sdk.cache import cache_directory
from framework.sdk.model_directory import describe, local_path
from hookspecs.contracts.model import ModelSource, ResolvedModel
from hookspecs.errors import ModelNotFoundError

__all__ = ["CONVERTER_VERSION", "GgufSource"]

CONVERTER_VERSION = 2
"""Part of the cache key; raise it whenever the files that a conversion writes change."""


class GgufSource(ModelSource):
    """Names that end in `.gguf`: paths of files."""

    def matches(self, name: str) -> bool:
        return name.endswith(".gguf") and not name.startswith("package:")

    def resolve(self, name: str, revision: str | None) -> ResolvedModel:
        """Converts the file to a float32 safetensors directory, unless that was done before.

        Only one process converts a file at a time; others wait for its result, which becomes
        visible when it is complete. Raises ModelNotFoundError for a path that is no file and for a
        cache that can not be written, UnsupportedModelError for a file that can not be converted.
        """
        refuse_revision(name, revision)
        path = local_path("model", name)
        if not path.is_file():
            known = "a directory" if path.is_dir() else "no regular file"
            state = known if path.exists() else "missing"
            raise ModelNotFoundError(
                f"model {name!r}: needed is a GGUF file, but {str(path)!r} is {state}. "
                "Check the spelling and the current directory."
            )
        try:
            directory = self._converted(path)
            point_to_file(directory, path)
        except OSError as error:
            raise ModelNotFoundError(
                f"model {name!r} could not be converted into the cache ({error}). The converted "
                "model takes 4 bytes a parameter there. Make room, or set FRAMEWORK_CACHE_DIR to "
                "a directory that can be written."
            ) from error
        return describe(self.context, name, directory)

    def _converted(self, path: Path) -> Path:
        root = cache_directory() / "gguf"
        root.mkdir(parents=True, exist_ok=True)
        digest = file_digest(path, root / "digests", self.context.progress)
        target = root / f"{digest[:32]}-v{CONVERTER_VERSION}"
        if target.is_dir():
            return target
        lock = FileLock(target.with_suffix(".lock"))
        try:
            lock.acquire(timeout=0)
        except Timeout:
            self.context.progress(f"waiting for another process to convert {path.name}", 0.0)
            lock.acquire()
        try:
            if not target.is_dir():
                self._convert(path, target)
        finally:
            lock.release()
        return target

    def _convert(self, path: Path, target: Path) -> None:
        """Writes to a temporary directory and renames it. The caller holds the lock."""
        from builtin_plugins.model_sources.gguf_convert import convert

        prefix = f"{target.name}.tmp-"
        for stale in target.parent.glob(f"{prefix}*"):  # left by a process that was killed
            shutil.rmtree(stale)
        temporary = Path(tempfile.mkdtemp(prefix=prefix, dir=target.parent))
        try:
            convert(path, temporary, self.context.progress)
            _flush(temporary)
            os.rename(temporary, target)
            _flush_names(target.parent)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise


def _flush(directory: Path) -> None:
    """Forces the files to disk: after a power failure a result is complete or not there."""
    for path in directory.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())
    _flush_names(directory)


def _flush_names(directory: Path) -> None:
    """Forces the names in a directory to disk."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
