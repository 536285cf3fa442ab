"""A directory with a model in it, in Hugging Face layout, as a model source describes it."""

from __future__ import annotations

from pathlib import Path

import msgspec

from framework.sdk.model_directory.info import read_model_info
from framework.sdk.model_directory.json_file import read_object
from framework.sdk.model_directory.regular_file import check_files
from framework.sdk.model_directory.tokenizer_path import tokenizer_path
from hookspecs.contracts.model import ModelSourceContext, ResolvedModel
from hookspecs.errors import ModelNotFoundError, UnsupportedModelError

__all__ = ["describe"]

_INDEX = "model.safetensors.index.json"


def describe(context: ModelSourceContext, name: str, directory: Path) -> ResolvedModel:
    """`directory`, which exists, as the model that the user called `name`.

    Raises ModelNotFoundError when config.json or weights are missing or can not be read,
    UnsupportedModelError when they can not be served.
    """
    check_files(directory)
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
