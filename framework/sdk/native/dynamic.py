"""Loading a built library."""

from __future__ import annotations

import ctypes
from pathlib import Path

from framework.sdk.native.errors import KernelsUnavailable


def open_library(path: Path) -> ctypes.CDLL:
    """KernelsUnavailable where the system does not load it, as from a disk without execution."""
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise KernelsUnavailable(
            f"the compiled kernels {str(path)!r} can not be loaded: {error}. If no code may be run "
            "from that disk, set FRAMEWORK_CACHE_DIR to a directory of another one; else the C "
            "compiler makes libraries for another system: name another one in the environment "
            "variable CC."
        ) from error
