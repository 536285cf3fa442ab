"""Where plugins keep what costs time to make: converted, unpacked or downloaded files."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["cache_directory"]

_VARIABLE = "FRAMEWORK_CACHE_DIR"


def cache_directory() -> Path:
    """FRAMEWORK_CACHE_DIR, else XDG_CACHE_HOME/engine-framework, else ~/.cache/engine-framework;
    absolute. It may not exist; each plugin has a folder of its own name in it.

    Raises OSError where that is no path, as in a container without a home directory.
    """
    own, base = os.environ.get(_VARIABLE), os.environ.get("XDG_CACHE_HOME")
    try:
        if own:
            return Path(own).expanduser().resolve()
        cache = Path(base) if base else Path("~/.cache").expanduser()
        return cache.resolve() / "engine-framework"
    except (OSError, RuntimeError, ValueError) as error:
        raise OSError(
            f"there is no cache directory ({str(error)[:256]}); set {_VARIABLE} to a directory "
            "that can be written"
        ) from error
