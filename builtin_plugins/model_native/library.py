"""The compiled kernels of this plugin."""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path

from builtin_plugins.model_native import layer, linear, rows
from framework.sdk.native import load_library

__all__ = ["build", "kernels"]


@functools.cache
def kernels() -> ctypes.CDLL:
    """Built if it has not been. KernelsUnavailable where that can not be."""
    return build()


def build(*flags: str) -> ctypes.CDLL:
    """The same, with more flags for the compiler."""
    source = Path(__file__).parent / "kernels" / "model.c"
    library = load_library("model_native", source, flags=flags)
    linear.declare(library)
    layer.declare(library)
    rows.declare(library)
    return library
