"""The JSON files of a checkpoint, read with a bound."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from hookspecs.errors import UnsupportedModelError

__all__ = ["read_object"]

_MOST = 64 << 20
"""Bytes. Indexes of the largest models have a few."""


def read_object(path: Path) -> dict[str, Any]:
    """The object in a JSON file. Raises UnsupportedModelError when there is no object in it, or
    more than 64 MiB; OSError when it can not be read."""
    with path.open("rb") as file:
        data = file.read(min(os.fstat(file.fileno()).st_size, _MOST) + 1)
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
