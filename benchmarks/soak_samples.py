"""What is sampled while the soak run goes on, and what it says of memory."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence

import msgspec
import numpy as np
import psutil

__all__ = ["Memory", "Sample", "memory_of", "metric", "parse_metrics", "sample"]

_LINE = re.compile(r"^([a-z_:]+)(\{[^}]*\})? (\S+)$")
_KEPT = re.compile(r"_total$|^framework_num_requests_|^framework_kv_cache_usage_perc$")
"""Counters and gauges. Not all metrics: the samples themselves would make the generator grow."""


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One moment."""

    at_s: float
    """Since the first."""
    rss: dict[str, int]
    """Resident bytes by process."""
    files: dict[str, int]
    """Open file descriptors by process."""
    threads: dict[str, int]
    metrics: dict[str, float]
    """Gauges and counters, by name and labels."""
    sent: int
    """Requests so far."""


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """A process's memory over the second half of the samples, by a linear fit."""

    process: str
    first_bytes: int
    """At the first sample of all."""
    last_bytes: int
    bytes_per_hour: float
    growth_percent: float
    """Of the fitted line from its begin to its end."""
    growth_bytes: float


def sample(processes: Sequence[psutil.Process], metrics: bytes, start: float, sent: int) -> Sample:
    """Processes that end meanwhile are left out."""
    rss, files, threads = {}, {}, {}
    for process in processes:
        try:
            with process.oneshot():
                name = f"{_title(process)} ({process.pid})"
                rss[name] = process.memory_info().rss
                files[name] = process.num_fds()
                threads[name] = process.num_threads()
        except psutil.NoSuchProcess:
            continue
    return Sample(
        at_s=time.perf_counter() - start,
        rss=rss,
        files=files,
        threads=threads,
        metrics=parse_metrics(metrics.decode()),
        sent=sent,
    )


def _title(process: psutil.Process) -> str:
    """For people: a process that names itself, or else what it runs."""
    if process.pid == os.getpid():
        return "load generator"
    command = " ".join(process.cmdline())
    known = {"resource_tracker": "resource tracker", " serve ": "server"}
    return next((name for mark, name in known.items() if mark in command), process.name())


def parse_metrics(page: str) -> dict[str, float]:
    """Values by name and labels, of the metrics that are kept."""
    found = {}
    for line in page.splitlines():
        match = _LINE.match(line)
        if match is not None and _KEPT.search(match[1]):
            found[match[1] + (match[2] or "")] = float(match[3])
    return found


def metric(metrics: dict[str, float], name: str, label: str = "") -> float:
    """The sum over the labels, or over those that have `label`."""
    return sum(
        value for key, value in metrics.items() if key.partition("{")[0] == name and label in key
    )


def memory_of(samples: Sequence[Sample]) -> list[Memory]:
    """Of each process that lived all the time."""
    half = [each for each in samples if each.at_s >= samples[-1].at_s / 2]
    times = np.array([each.at_s for each in half])
    found = []
    for process in samples[0].rss:
        values = [each.rss.get(process) for each in half]
        if len(half) < 3 or None in values:
            continue
        data = np.array(values, dtype=np.float64)
        slope, begin = np.polyfit(times - times[0], data, 1)
        growth = float(slope * (times[-1] - times[0]))
        found.append(
            Memory(
                process=process,
                first_bytes=samples[0].rss[process],
                last_bytes=int(data[-1]),
                bytes_per_hour=float(slope) * 3600,
                growth_percent=100 * growth / float(begin),
                growth_bytes=growth,
            )
        )
    return found
