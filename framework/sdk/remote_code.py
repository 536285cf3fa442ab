"""Which code `model.trust_remote_code` allows: that of the checkpoint's own directory."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hookspecs.errors import UnsupportedModelError

__all__ = ["refuse_foreign_code"]

_FILES = ("config.json", "tokenizer_config.json")


def refuse_foreign_code(directory: str) -> None:
    """Raises UnsupportedModelError when a configuration file names a class of another repository
    (`org/repo--module.Class`). transformers would import it: from its cache, or after a download.

    A file that is missing or no JSON is left to the library that needs it.
    """
    for name in _FILES:
        path = Path(directory, name)
        try:
            config = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            continue
        references = config.get("auto_map") if isinstance(config, dict) else None
        foreign = next((text for text in _texts(references) if "--" in text), None)
        if foreign is not None:
            raise UnsupportedModelError(
                f"{str(path)!r} has {foreign!r} in auto_map: code of another repository. "
                "model.trust_remote_code allows only the code that comes with the model; copy "
                f"the module into {directory!r} and name it without 'org/repo--'."
            )


def _texts(value: Any) -> Iterator[str]:
    """The class references in an auto_map: a text each, or a list of texts and nulls."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (dict, list)):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _texts(each)
