"""Files that this process has open."""

from __future__ import annotations

import gc
import os

__all__ = ["open_descriptors"]


def open_descriptors() -> int:
    """How many, sockets included. What only garbage holds is closed before."""
    gc.collect()
    return len(os.listdir("/dev/fd"))
