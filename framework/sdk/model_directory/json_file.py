"""The JSON files of a checkpoint, read with a bound."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from framework.sdk.model_directory.regular_file import check_regular
from hookspecs.errors import UnsupportedModelError

__all__ = ["read_object"]

_MOST = 64 << 20
"""Bytes. Indexes of the largest models have a few."""


def read_object(path: Path) -> dict[str, Any]:
    """The object in a JSON file. Raises UnsupportedModelError when it is no regular file, when
    there is no object in it, or more than 64 MiB; OSError when it can not be read."""
    check_regular(path, path.stat().st_mode)  # some kinds can not even be opened
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        state = os.fstat(descriptor)
        check_regular(path, state.st_mode)  # it may have become another
        data = file.read(min(state.st_size, _MOST) + 1)
    if len(data) > _MOST:
        raise UnsupportedModelError(
            f"{str(path)!r} has more than {_MOST} bytes, the most that is read of a JSON file of "
            "a model. Download the model again."
        )
    try:
        value = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise UnsupportedModelError(
            f"{str(path)!r} is not valid JSON ({error}). The file is damaged or incomplete; "
            "download the model again."
        ) from error
    if not isinstance(value, dict):
        raise UnsupportedModelError(
            f"{str(path)!r} holds a JSON {type(value).__name__}, not an object. "
            "Download the model again."
        )
    return value
