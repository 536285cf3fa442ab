"""The stat logger `json_lines`. Front-end process."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import msgspec

from builtin_plugins.stats_json_lines.options import Every, JsonLinesOptions
from builtin_plugins.stats_json_lines.records import (
    IntervalRecord,
    IntervalTotals,
    finished_record,
)
from hookspecs.contracts.stats import StatLogger, StatLoggerContext
from hookspecs.types.stats import IterationStats, SchedulerStats

__all__ = ["JsonLinesStatLogger"]


class JsonLinesStatLogger(StatLogger):
    """Appends one JSON object a line: JSON Lines, https://jsonlines.org.

    Every interval gets a line, also an idle one.
    Lines reach the file when they are made, each whole in one write, so that several front
    ends can share a file and a reader sees no halves. The file stays open: rotate it by copying
    and truncating. Raises OSError when it can not be opened or written.
    """

    def __init__(
        self,
        context: StatLoggerContext,
        wall_clock: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(context)
        options: JsonLinesOptions = context.options
        self._finished = options.every in (Every.FINISHED, Every.BOTH)
        self._reports = options.every in (Every.REPORT, Every.BOTH)
        self._wall_clock = wall_clock
        self._clock = clock
        self._since = clock()
        self._totals = IntervalTotals()
        self._encoder = msgspec.json.Encoder()
        self._file = open(options.path, "ab", buffering=0)  # noqa: SIM115 (closed by close)

    def record(
        self,
        scheduler: SchedulerStats | None,
        iteration: IterationStats | None,
        engine_index: int = 0,
    ) -> None:
        if scheduler is not None:
            self._totals.add_scheduler(scheduler, engine_index)
        if iteration is None:
            return
        self._totals.add_iteration(iteration)
        if self._finished:
            for stats in iteration.finished:
                self._write(finished_record(stats, self._wall_clock(), engine_index))

    def report(self) -> None:
        if not self._reports:
            return
        now = self._clock()
        interval_s, self._since = now - self._since, now
        self._write(self._totals.take(self._wall_clock(), interval_s))

    def close(self) -> None:
        self._file.close()

    def _write(self, record: dict[str, Any] | IntervalRecord) -> None:
        line = self._encoder.encode(record) + b"\n"
        written = self._file.write(line)
        if written != len(line):
            raise OSError(
                f"wrote {written or 0} of {len(line)} bytes to {self._file.name}; free space "
                "there, or set plugins.options.json_lines.path to another file"
            )
