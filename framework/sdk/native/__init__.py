"""Compiled kernels: C source that a plugin ships, built where it runs, and their thread pool.

A kernel library is C11 source beside the plugin's modules that includes `fw_kernel.h`. It is built
by the system's compiler when it is first needed on a machine, and kept in the cache directory. All
libraries of a process share one pool of threads.
"""

from __future__ import annotations

from framework.sdk.native.errors import KernelsUnavailable
from framework.sdk.native.library import available, load_library
from framework.sdk.native.pool import num_threads, set_num_threads

__all__ = ["KernelsUnavailable", "available", "load_library", "num_threads", "set_num_threads"]
