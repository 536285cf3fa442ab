"""Decides where the tokenizer of a model is read from."""

from __future__ import annotations

from pathlib import Path

from framework.sdk.model_directory.hub_download import (
    TOKENIZER_PATTERNS,
    download,
    is_hub_name,
)
from framework.sdk.model_directory.local_path import local_path
from framework.sdk.model_directory.regular_file import check_files
from hookspecs.contracts.model import ModelSourceContext
from hookspecs.errors import ModelNotFoundError

__all__ = ["tokenizer_path"]


def tokenizer_path(
    context: ModelSourceContext, directory: Path, *, has_tokenizer: bool
) -> str | None:
    """A local directory with tokenizer files, or None when the model has none.

    `model.tokenizer` of the configuration comes first: a local directory, `none`, or `org/name`,
    whose tokenizer files are then downloaded. Raises ModelNotFoundError when it is none of them,
    UnsupportedModelError when there is no regular file under the name of one.
    """
    override = context.config.model.tokenizer
    if override is None:
        return str(directory) if has_tokenizer else None
    if override == "none":
        return None
    local = local_path("model.tokenizer", override)
    if local.is_dir():
        check_files(local)
        return str(local)
    if is_hub_name(override):
        return str(download(override, None, TOKENIZER_PATTERNS, context.progress))
    raise ModelNotFoundError(
        f"model.tokenizer is {override!r}, which is no existing directory. Allowed are a directory "
        "with tokenizer files, a Hugging Face name (org/name) and none. Correct it, or leave it "
        "out to use the tokenizer of the model."
    )
