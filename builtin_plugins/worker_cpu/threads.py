"""How many threads compute, in torch's operations and in compiled kernels alike."""

from __future__ import annotations

import math
import os
from pathlib import Path

import torch

from framework.sdk import native

__all__ = ["set_compute_threads", "usable_cores"]

_CGROUP = Path("/sys/fs/cgroup")


def set_compute_threads(threads: int | None) -> int:
    """Let both use `threads`, or by default one for each usable core, but no more than torch would
    (OMP_NUM_THREADS); returns how many. For the whole process."""
    if threads is None:
        threads = min(torch.get_num_threads(), usable_cores())
    torch.set_num_threads(threads)
    native.set_num_threads(threads)
    return threads


def usable_cores(cgroup: Path = _CGROUP) -> int:
    """Cores that this process may run on, and has the processor time for: at least 1. `cgroup`:
    where the control group of this process (version 2, as in a container) shows."""
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity is not None else os.cpu_count() or 1
    try:
        quota, period = (cgroup / "cpu.max").read_text().split()
        if quota != "max":
            cores = min(cores, math.ceil(int(quota) / int(period)))
    except (OSError, ValueError):
        pass  # no control group, or none with a limit of its own
    return max(1, cores)
