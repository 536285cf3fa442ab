"""The model source `directory`: a local directory in Hugging Face layout."""

from __future__ import annotations

import os

from framework.sdk.model_directory import describe, local_path
from hookspecs.contracts.model import ModelSource, ResolvedModel
from hookspecs.errors import ModelNotFoundError

__all__ = ["DirectorySource", "refuse_revision"]


class DirectorySource(ModelSource):
    """Takes existing paths, and names that can only be paths, so that it can say what is wrong."""

    def matches(self, name: str) -> bool:
        if not name or name.endswith(".gguf"):
            return False
        return name.startswith(("/", "./", "../", "~")) or os.path.exists(name)

    def resolve(self, name: str, revision: str | None) -> ResolvedModel:
        """Reads JSON files only. Raises ModelNotFoundError or UnsupportedModelError."""
        refuse_revision(name, revision)
        directory = local_path("model", name)
        if directory.is_file():
            raise ModelNotFoundError(
                f"model {name!r} is a file, not a directory. Allowed are a directory with "
                "config.json and *.safetensors files, and a file that ends in .gguf. Give the "
                "directory that the file is in."
            )
        if not directory.is_dir():
            raise ModelNotFoundError(
                f"model {name!r}: there is no directory {str(directory)!r}. Check the spelling and "
                "the current directory, or give a Hugging Face name (org/name)."
            )
        return describe(self.context, name, directory)


def refuse_revision(name: str, revision: str | None) -> None:
    """Raises ModelNotFoundError when a revision is asked of local files, which have none."""
    if revision is not None:
        raise ModelNotFoundError(
            f"model {name!r} is local, and local files have no revisions, but model.revision is "
            f"{revision!r}. Leave model.revision out; it is for Hugging Face names (org/name)."
        )
