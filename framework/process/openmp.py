"""How the threads of compute libraries wait."""

from __future__ import annotations

import os
import sys

__all__ = ["let_compute_threads_sleep"]


def let_compute_threads_sleep() -> None:
    """Set OMP_WAIT_POLICY to PASSIVE, for this process and its children, unless it is set or torch
    is imported already: OpenMP reads it once, when it is loaded.

    By default its threads spin while they wait; beside other work on the same cores that makes a
    step about ten times slower.
    """
    if "torch" not in sys.modules:
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
