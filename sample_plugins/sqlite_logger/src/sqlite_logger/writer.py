"""`Writer`: rows to the database, in a thread of its own."""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from queue import Empty, SimpleQueue

from sqlite_logger.database import is_busy
from sqlite_logger.rows import Row

__all__ = ["Writer"]

logger = logging.getLogger(__name__)

CLOSE_S = 5.0
"""The longest that the end waits for the disk."""
BUSY_S = 1.0
"""How long one try waits for another process that writes."""
_BATCH = 512
"""Most rows of one transaction."""
_PRUNE_S = 3600.0
"""Seconds between deletions of old rows."""
_DATED = ("finished_requests", "intervals", "rejections")


class Writer:
    """Whoever gives it rows never waits: for the disk, or for another process that writes. One
    thread calls it, another one writes."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        process_id: int,
        *,
        max_queued: int,
        keep_s: float | None,
    ) -> None:
        """`connection` is its own from now on. `process_id`: the row in which it counts what it
        dropped. `keep_s`: age of rows that are deleted."""
        connection.execute(f"PRAGMA busy_timeout = {int(BUSY_S * 1000)}")
        self._connection = connection
        self._process_id = process_id
        self._max_queued = max_queued
        self._keep_s = keep_s
        self._pruned_at = float("-inf")
        self._rows: SimpleQueue[Row | None] = SimpleQueue()
        self._failure: Exception | None = None
        self._give_up = threading.Event()
        self.num_dropped = 0
        self._thread = threading.Thread(target=self._run, name="sqlite-logger", daemon=True)
        self._thread.start()

    def put(self, row: Row) -> None:
        """Write a row soon; drop it when too many wait already. Raises, once, what an earlier
        write raised; nothing is written after that."""
        self._raise_failure()
        if self._rows.qsize() < self._max_queued:
            self._rows.put(row)
            return
        if not self.num_dropped:
            logger.warning("the database is slower than requests: rows are dropped until it is not")
        self.num_dropped += 1

    def close(self) -> None:
        """Write what waits, within CLOSE_S. Raises as `put` does. Safe to call twice."""
        if self._thread.is_alive():
            self._rows.put(None)
            self._thread.join(CLOSE_S)
            if self._thread.is_alive():
                self._give_up.set()
                self._thread.join(2 * BUSY_S)
                self.num_dropped += max(0, self._rows.qsize() - 1)  # None is the last
                logger.warning("the last rows could not be written within %g s", CLOSE_S)
            if self.num_dropped:
                logger.warning("%d rows were dropped in all", self.num_dropped)
        self._raise_failure()

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _run(self) -> None:
        try:
            open_end = True
            while open_end and not self._give_up.is_set():
                batch, open_end = self._take()
                self._write(batch, closing=not open_end)
        except Exception as failure:
            self._failure = failure
        finally:
            self._connection.close()

    def _take(self) -> tuple[list[Row], bool]:
        """Rows, at least one before the end; whether more may come."""
        batch: list[Row] = []
        row = self._rows.get()
        while row is not None:
            batch.append(row)
            if len(batch) == _BATCH:
                return batch, True
            try:
                row = self._rows.get_nowait()
            except Empty:
                return batch, True
        return batch, False

    def _write(self, batch: list[Row], *, closing: bool) -> None:
        """One transaction, tried until no other process is in the way."""
        while not self._give_up.is_set():
            try:
                self._connection.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError as error:
                # After BUSY_S. The queue fills meanwhile, and its bound says what is lost.
                if is_busy(error):
                    continue
                raise
            break
        else:
            self.num_dropped += len(batch)
            return
        for row in batch:
            self._connection.execute(row.statement, row.values)
        self._connection.execute(
            "UPDATE processes SET num_dropped = ?, closed_at = ? WHERE process_id = ?",
            (self.num_dropped, time.time() if closing else None, self._process_id),
        )
        self._prune()
        self._connection.execute("COMMIT")

    def _prune(self) -> None:
        now = time.monotonic()
        if self._keep_s is None or now - self._pruned_at < _PRUNE_S:
            return
        self._pruned_at = now
        oldest = time.time() - self._keep_s
        for table in _DATED:
            self._connection.execute(f"DELETE FROM {table} WHERE ended_at < ?", (oldest,))
