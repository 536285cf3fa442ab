"""Kernel libraries, ready to be called."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from pathlib import Path

from framework.sdk.native.build import built_library
from framework.sdk.native.dynamic import open_library
from framework.sdk.native.errors import KernelsUnavailable
from framework.sdk.native.pool import pool_address

__all__ = ["available", "load_library"]


def load_library(name: str, source: Path, *, flags: Sequence[str] = ()) -> ctypes.CDLL:
    """The library `name` of the C file `source`, which includes `fw_kernel.h` and whatever else
    lies in its directory; compiled when it is needed for the first time, bound to the pool.
    `flags` are more flags for the compiler.

    Calls of a `ctypes.CDLL` let other Python threads run. Raises KernelsUnavailable.
    """
    library = open_library(built_library(name, source, flags))
    library.fw_bind_pool.argtypes = [ctypes.c_void_p]
    library.fw_bind_pool.restype = None
    library.fw_bind_pool(pool_address())
    return library


@functools.cache
def available() -> str | None:
    """Why no kernels can be built and loaded here; None if they can. The first call tries it
    (the pool is built), later ones give the same answer."""
    try:
        pool_address()
    except KernelsUnavailable as error:
        return str(error)
    return None
