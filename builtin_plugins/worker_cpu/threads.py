"""How many threads compute, in torch's operations and in compiled kernels alike."""

from __future__ import annotations

import logging
import math
import os
import weakref
from pathlib import Path

import torch

from framework.sdk import native

__all__ = ["free_compute_threads", "set_compute_threads", "usable_cores"]

_CGROUP = Path("/sys/fs/cgroup")

logger = logging.getLogger("framework.worker")

_given: weakref.WeakKeyDictionary[object, int] = weakref.WeakKeyDictionary()
"""What each worker that lives in this process was given."""


def set_compute_threads(threads: int | None, worker: object) -> int:
    """Let both use `threads`, or by default one for each usable core, but no more than torch would
    (OMP_NUM_THREADS); returns how many. For the whole process: a warning if another worker that
    lives in it was given another number."""
    if threads is None:
        threads = min(torch.get_num_threads(), usable_cores())
    _given.pop(worker, None)
    others = sorted({number for number in list(_given.values()) if number != threads})
    if others:
        logger.warning(
            "executor.threads: all engines of this process compute with %d threads from now on, "
            "since they share them; another one here was started with %s. Give all the same "
            "number, or run each in a process of its own (engine.process = separate)",
            threads,
            " and one with ".join(map(str, others)),
        )
    torch.set_num_threads(threads)
    native.set_num_threads(threads)
    _given[worker] = threads
    return threads


def free_compute_threads(worker: object) -> None:
    """`worker` computes no more. Those that are left keep the number that was set last."""
    _given.pop(worker, None)


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
