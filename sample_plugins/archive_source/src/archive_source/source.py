"""The model source. Launcher process, before there is an engine."""

from __future__ import annotations

from pathlib import Path

from framework.sdk.cache import cache_directory
from framework.sdk.model_directory import describe, local_path
from hookspecs.contracts.model import ModelSource, ResolvedModel
from hookspecs.errors import ModelNotFoundError, UnsupportedModelError

from archive_source.cache import unpacked_once
from archive_source.options import ArchiveOptions
from archive_source.unpack import FORMATS, unpack

__all__ = ["ArchiveSource"]

_PREFIX = "archive:"


class ArchiveSource(ModelSource):
    """Unpacks an archive once, and gives the directory in it that has a config.json."""

    def matches(self, name: str) -> bool:
        return name.startswith(_PREFIX)

    def resolve(self, name: str, revision: str | None) -> ResolvedModel:
        """ModelNotFoundError when archive, cache or files are not there or can not be used,
        UnsupportedModelError when they are not what they should be."""
        if revision is not None:
            raise ModelNotFoundError(
                f"model {name!r} is a local file, which has no revisions, but model.revision is "
                f"{revision!r}. Leave model.revision out."
            )
        archive = _archive(name)
        try:
            directory = _model_directory(name, self._unpacked(archive))
        except OSError as error:
            raise ModelNotFoundError(
                f"model {name!r} could not be unpacked ({error}). Make room in the cache, or set "
                "plugins.options.archive.cache_dir to a directory that can be written."
            ) from error
        return describe(self.context, name, directory)

    def _unpacked(self, archive: Path) -> Path:
        options: ArchiveOptions = self.context.options
        progress = self.context.progress

        def work(directory: Path) -> None:
            unpack(archive, directory, options.max_bytes, progress)

        return unpacked_once(archive, self._root(), work, progress)

    def _root(self) -> Path:
        given: str | None = self.context.options.cache_dir
        if given is None:
            return cache_directory() / "archive"
        return local_path("plugins.options.archive.cache_dir", given)


def _archive(name: str) -> Path:
    """The file that is named. Raises as `resolve` does."""
    given = name.removeprefix(_PREFIX)
    if not given.endswith(tuple(FORMATS)):
        raise UnsupportedModelError(
            f"model {name!r}: its name must end in {', '.join(FORMATS)}, which says how it is "
            "packed. Rename the file, or pack it as one of these."
        )
    try:
        path = Path(given).expanduser().resolve()
        found = path.is_file()
    except (OSError, RuntimeError, ValueError) as error:
        raise ModelNotFoundError(
            f"model {name[:256]!r}: its path can not be used ({str(error)[:256]}). Correct it."
        ) from error
    if not found:
        state = "is a directory" if path.is_dir() else "does not exist"
        raise ModelNotFoundError(
            f"model {name!r}: needed is a file, but {str(path)!r} {state}. Check the spelling and "
            "the current directory. A directory is given without archive:."
        )
    return path


def _model_directory(name: str, unpacked: Path) -> Path:
    """The directory itself, or the only one directly in it with a config.json."""
    if (unpacked / "config.json").is_file():
        return unpacked
    found = sorted(path.parent for path in unpacked.glob("*/config.json") if path.is_file())
    if len(found) != 1:
        folders = ", ".join(repr(path.name) for path in found) or "none"
        raise ModelNotFoundError(
            f"model {name!r}: the archive must hold one model, with config.json at the top or in "
            f"a single folder; folders with one are: {folders}. Pack the model's directory alone."
        )
    return found[0]
