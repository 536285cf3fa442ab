"""The setting `model.tokenizer`, which every model source reads."""

from __future__ import annotations

from pathlib import Path

from hookspecs.errors import ModelNotFoundError

__all__ = ["tokenizer_path"]


def tokenizer_path(setting: str | None, directory: Path) -> str | None:
    """The directory with the tokenizer of the model in `directory`; None if it has none.

    ModelNotFoundError for a setting that is neither a directory nor `none`. Names of hubs are not
    downloaded here.
    """
    if setting is None:
        return str(directory) if (directory / "tokenizer.json").is_file() else None
    if setting == "none":
        return None
    local = Path(setting).expanduser()
    if not local.is_dir():
        raise ModelNotFoundError(
            f"model.tokenizer is {setting!r}, which is no existing directory. With a model in an "
            "archive it is a directory or none; a hub's tokenizer must be downloaded before. "
            "Correct it, or leave it out to use the tokenizer in the archive."
        )
    return str(local.resolve())
