"""The model source `directory`: a local directory in Hugging Face layout."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from builtin_plugins.model_sources.info import read_model_info
from builtin_plugins.model_sources.json_file import read_object
from builtin_plugins.model_sources.local_path import local_path
from builtin_plugins.model_sources.tokenizer_path import tokenizer_path
from hookspecs.contracts.model import ModelSource, ModelSourceContext, ResolvedModel
from hookspecs.errors import ModelNotFoundError, UnsupportedModelError

__all__ = ["DirectorySource", "describe", "refuse_revision"]

_INDEX = "model.safetensors.index.json"


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


def describe(context: ModelSourceContext, name: str, directory: Path) -> ResolvedModel:
    """`directory`, which exists, as the model that the user called `name`.

    Raises ModelNotFoundError when config.json or weights are missing or can not be read,
    UnsupportedModelError when they can not be served.
    """
    try:
        info = read_model_info(directory, trust_remote_code=context.config.model.trust_remote_code)
        _check_weights(directory)
    except OSError as error:
        raise ModelNotFoundError(
            f"model {name!r}: its files in {str(directory)!r} can not be read ({error}). "
            "Check their permissions, and the disk."
        ) from error
    tokenizer = tokenizer_path(context, directory, has_tokenizer=info.has_tokenizer)
    return ResolvedModel(
        name=name,
        path=str(directory),
        tokenizer_path=tokenizer,
        info=msgspec.structs.replace(info, has_tokenizer=tokenizer is not None),
    )


def refuse_revision(name: str, revision: str | None) -> None:
    """Raises ModelNotFoundError when a revision is asked of local files, which have none."""
    if revision is not None:
        raise ModelNotFoundError(
            f"model {name!r} is local, and local files have no revisions, but model.revision is "
            f"{revision!r}. Leave model.revision out; it is for Hugging Face names (org/name)."
        )


def _check_weights(directory: Path) -> None:
    index = directory / _INDEX
    if index.is_file():
        _check_shards(directory, index)
        return
    if any(directory.glob("*.safetensors")):
        return
    pickles = sorted(p.name for kind in ("*.bin", "*.pt", "*.pth") for p in directory.glob(kind))
    if pickles:
        raise UnsupportedModelError(
            f"{str(directory)!r} has its weights in {', '.join(pickles)}: pickle files, which can "
            "run code when they are read. Only *.safetensors files are read; convert the model "
            "(transformers: save_pretrained) or get it in that format."
        )
    raise ModelNotFoundError(
        f"{str(directory)!r} has no weights: no *.safetensors files. (Pickle formats such as *.bin "
        "are not read.) Download the model again."
    )


def _check_shards(directory: Path, index: Path) -> None:
    try:
        names = {*map(str, read_object(index)["weight_map"].values())}
    except (KeyError, AttributeError) as error:
        raise UnsupportedModelError(
            f"{str(index)!r} is not a valid index of weight files ({error!r}). "
            "Download the model again."
        ) from error
    outside = sorted(name for name in names if Path(name).name != name)
    if outside:
        raise UnsupportedModelError(
            f"{str(index)!r} names weight files outside of its own directory: {outside[0]!r}. "
            "Only plain file names are read."
        )
    missing = sorted(name for name in names if not (directory / name).is_file())
    if missing:
        raise ModelNotFoundError(
            f"{str(index)!r} lists weight files that are missing: {', '.join(missing)}. "
            "The download is incomplete; download the model again."
        )
