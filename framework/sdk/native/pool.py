"""The thread pool that the kernel libraries of this process share."""

from __future__ import annotations

import ctypes
import os
import threading
from pathlib import Path

from framework.sdk.native.build import built_library
from framework.sdk.native.dynamic import open_library

__all__ = ["num_threads", "set_num_threads"]

_MOST = 1024
"""`MAX_THREADS` of pool.c."""


class _Pool:
    """Loaded when the first library is."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._library: ctypes.CDLL | None = None
        self._threads = _default_threads()

    @property
    def threads(self) -> int:
        return self._threads

    def resize(self, threads: int) -> None:
        with self._lock:
            self._threads = threads
            if self._library is not None:
                self._library.fw_pool_set_num_threads(threads)

    def address(self) -> int:
        with self._lock:
            if self._library is None:
                source = Path(__file__).with_name("pool.c")
                library = open_library(built_library("pool", source, ()))
                library.fw_pool_get.restype = ctypes.c_void_p
                library.fw_pool_set_num_threads(self._threads)
                self._library = library
            address: int = self._library.fw_pool_get()
            return address


def _default_threads() -> int:
    """What OMP_NUM_THREADS says for the outermost loops, else the processors that this process
    may use."""
    given = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    if given.isdecimal() and int(given) > 0:
        threads = int(given)
    elif hasattr(os, "sched_getaffinity"):
        threads = len(os.sched_getaffinity(0))
    else:
        threads = os.cpu_count() or 1
    return min(threads, _MOST)


_POOL = _Pool()


def pool_address() -> int:
    """Of the C struct `fw_pool`. KernelsUnavailable if it can not be built."""
    return _POOL.address()


def num_threads() -> int:
    """Threads that a loop of a kernel may use, the calling one included. At first as many as
    OMP_NUM_THREADS says, else as there are processors for this process."""
    return _POOL.threads


def set_num_threads(threads: int) -> None:
    """From now on, for all kernel libraries of this process; waits for a loop that runs.

    Raises ValueError unless 1 <= threads <= 1024.
    """
    if not (1 <= threads <= _MOST):
        raise ValueError(f"threads is {threads}; it must be 1 to {_MOST}")
    _POOL.resize(threads)
