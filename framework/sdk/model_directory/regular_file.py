"""A model's files are regular files: reading a pipe waits for ever, and a device has no end."""

from __future__ import annotations

import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from framework.sdk.model_directory.hub_download import MODEL_PATTERNS
from hookspecs.errors import UnsupportedModelError

__all__ = ["check_files", "check_regular"]

_KINDS: Final[Mapping[str, Callable[[int], bool]]] = {
    "a directory": stat.S_ISDIR,
    "a named pipe": stat.S_ISFIFO,
    "a socket": stat.S_ISSOCK,
    "a device": lambda mode: stat.S_ISCHR(mode) or stat.S_ISBLK(mode),
}


def check_regular(path: Path, mode: int) -> None:
    """UnsupportedModelError unless `mode`, of `path` itself and not of a link, is that of a regular
    file."""
    if stat.S_ISREG(mode):
        return
    kind = next((kind for kind, is_kind in _KINDS.items() if is_kind(mode)), "of another kind")
    raise UnsupportedModelError(
        f"{str(path)!r} is {kind}; the files of a model must be regular files. Put the file there, "
        "or download the model again."
    )


def check_files(directory: Path) -> None:
    """The same of all that libraries may read of a model or tokenizer in `directory`; opens
    nothing. What is missing, a link to nowhere too, is left to whoever needs it."""
    for pattern in MODEL_PATTERNS:
        for path in sorted(directory.glob(pattern)):
            try:
                mode = path.stat().st_mode
            except OSError:
                continue  # whoever opens it says why that can not be
            check_regular(path, mode)
