"""The stat logger. Front-end process, on the thread that hands out outputs, which must not wait."""

from __future__ import annotations

import os
import sqlite3
import time
from collections import Counter, defaultdict

from hookspecs.contracts.stats import StatLogger, StatLoggerContext
from hookspecs.errors import PluginConfigError
from hookspecs.types.stats import IterationStats, SchedulerStats

from sqlite_logger.database import Process, UnusableDatabase, open_database
from sqlite_logger.options import SqliteOptions
from sqlite_logger.rows import EngineTotals, finished_row, rejection_row, storable
from sqlite_logger.writer import Writer

__all__ = ["SqliteStatLogger"]

_DAY_S = 86400.0


class SqliteStatLogger(StatLogger):
    """A row for each output that ended, and for each engine that did something in an interval.

    PluginConfigError when the database can not be used. sqlite3.Error when it could not be
    written later, at the next batch or at the end: the kernel then detaches this stat logger, and
    requests go on.
    """

    def __init__(self, context: StatLoggerContext) -> None:
        super().__init__(context)
        options: SqliteOptions = context.options
        self._began_at = time.time()
        self._totals: defaultdict[int, EngineTotals] = defaultdict(EngineTotals)
        self._rejections: Counter[str] = Counter()
        try:
            process = Process(
                self._began_at, os.getpid(), context.process_index, storable(context.model)
            )
            connection, self._process_id = open_database(options.path, process)
        except (UnusableDatabase, OSError, ValueError, sqlite3.Error) as error:
            raise PluginConfigError(
                f"plugins.options.{context.name}.path is {options.path!r}, which can not be used: "
                f"{error}; name a new file in a directory that exists, on a local file system",
                plugin=context.plugin,
            ) from error
        keep = options.keep_days
        self._writer = Writer(
            connection,
            self._process_id,
            max_queued=options.max_queued,
            keep_s=None if keep is None else keep * _DAY_S,
        )

    @property
    def num_dropped(self) -> int:
        """Rows that are not in the database, since too many waited to be written."""
        return self._writer.num_dropped

    def record(
        self,
        scheduler: SchedulerStats | None,
        iteration: IterationStats | None,
        engine_index: int = 0,
    ) -> None:
        self._totals[engine_index].add(scheduler, iteration)
        if iteration is None:
            return
        now = time.time()
        for stats in iteration.finished:
            self._writer.put(finished_row(self._process_id, engine_index, now, stats))

    def record_rejection(self, reason: str) -> None:
        self._rejections[reason] += 1

    def report(self) -> None:
        began_at, self._began_at = self._began_at, time.time()
        span = (began_at, self._began_at)
        for engine_index, totals in sorted(self._totals.items()):
            self._writer.put(totals.row(self._process_id, engine_index, *span))
        for reason, count in sorted(self._rejections.items()):
            self._writer.put(rejection_row(self._process_id, *span, reason, count))
        self._totals.clear()
        self._rejections.clear()

    def close(self) -> None:
        self._writer.close()
