"""`Writer`: lines to a file, in a thread of its own."""

from __future__ import annotations

import logging
import threading
from queue import SimpleQueue

from trace_json_lines.bounded_file import BoundedFile

__all__ = ["MAX_QUEUED", "Writer"]

logger = logging.getLogger(__name__)

MAX_QUEUED = 8192
"""Lines that wait for the disk; more are dropped."""
CLOSE_S = 5.0
"""The longest that the end waits for the disk."""


class Writer:
    """Whoever gives it lines never waits: for the disk, or for another process that has the lock.
    One thread calls it, another one writes."""

    def __init__(self, file: BoundedFile, buffer_bytes: int) -> None:
        """`file` is its own from now on. `buffer_bytes`: what is gathered before it is written;
        0: every line is written by itself."""
        self._file = file
        self._buffer_bytes = buffer_bytes
        self._lines: SimpleQueue[bytes | None] = SimpleQueue()
        self._failure: Exception | None = None
        self.num_dropped = 0
        self._thread = threading.Thread(target=self._run, name="trace-json-lines", daemon=True)
        self._thread.start()

    def put(self, line: bytes) -> None:
        """Write a line soon; drop it when MAX_QUEUED wait already. Raises, once, what an earlier
        write raised; nothing is written after that."""
        self._raise_failure()
        if self._lines.qsize() < MAX_QUEUED:
            self._lines.put(line)
            return
        if not self.num_dropped:
            logger.warning("the disk is slower than requests: lines are dropped until it is not")
        self.num_dropped += 1

    def close(self) -> None:
        """Write what waits, within CLOSE_S. Raises as `put` does. Safe to call twice."""
        if self._thread.is_alive():
            self._lines.put(None)
            self._thread.join(CLOSE_S)
            if self._thread.is_alive():
                logger.warning("the last lines could not be written within %g s", CLOSE_S)
            if self.num_dropped:
                logger.warning("%d lines were dropped in all", self.num_dropped)
        self._raise_failure()

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _run(self) -> None:
        try:
            self._write_lines()
        except Exception as failure:
            self._failure = failure
        finally:
            self._file.close()

    def _write_lines(self) -> None:
        buffer = bytearray()
        while (line := self._lines.get()) is not None:
            buffer += line
            if len(buffer) > self._buffer_bytes:
                self._file.append(bytes(buffer))
                buffer.clear()
        if buffer:
            self._file.append(bytes(buffer))
