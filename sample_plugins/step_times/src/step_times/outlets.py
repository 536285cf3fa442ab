"""Where reports go: a file, or a table in the log."""

from __future__ import annotations

import logging
from typing import Protocol

import msgspec

from step_times.report import Report, Totals

__all__ = ["JsonLines", "LogTable", "Outlet", "table"]

# Below `framework`: of other loggers the command line and engine processes show warnings only.
logger = logging.getLogger("framework.step_times")


class Outlet(Protocol):
    """Core process, main thread."""

    def write(self, report: Report) -> None:
        """Take a report."""

    def close(self) -> None:
        """The last call."""


class JsonLines:
    """JSON Lines, https://jsonlines.org: one object a report, each written at once, so several
    engine cores can share the file."""

    def __init__(self, path: str) -> None:
        """OSError when it can not be opened."""
        self._file = open(path, "ab", buffering=0)  # noqa: SIM115
        self._encoder = msgspec.json.Encoder()

    def write(self, report: Report) -> None:
        """OSError when it could not be written."""
        line = self._encoder.encode(report) + b"\n"
        written = self._file.write(line)
        if written != len(line):
            raise OSError(f"wrote {written} of {len(line)} bytes to {self._file.name!r}")

    def close(self) -> None:
        """Safe to call twice."""
        self._file.close()


class LogTable:
    """Level INFO."""

    def write(self, report: Report) -> None:
        """One record with several lines."""
        logger.info("%s", table(report))

    def close(self) -> None:
        """Nothing to do."""


def table(report: Report) -> str:
    """Means a step; times in milliseconds."""
    lines = [
        f"step times of engine {report.engine_index}, steps {report.first_step} to "
        f"{report.last_step}: {report.core_share:.1%} of the time in the core",
        f"{'':8}{'steps':>8}{'rows':>8}{'tokens':>8}{'worker':>9}{'slowest':>9}{'cpu':>9}"
        f"{'core':>9}",
    ]
    lines += [_row(kind, totals) for kind, totals in sorted(report.kinds.items())]
    return "\n".join(lines)


def _row(kind: str, totals: Totals) -> str:
    steps, tokens = totals.steps, totals.prefill_tokens + totals.decode_tokens
    worker, cpu, core = (
        1e3 * seconds / steps for seconds in (totals.worker_s, totals.cpu_s, totals.core_s)
    )
    return (
        f"{kind:8}{steps:8}{totals.rows / steps:8.1f}{tokens / steps:8.1f}{worker:9.3f}"
        f"{1e3 * totals.max_worker_s:9.3f}{cpu:9.3f}{core:9.3f}"
    )
