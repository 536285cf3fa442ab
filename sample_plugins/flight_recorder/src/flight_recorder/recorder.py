"""The recorder: a ring of events, and what happens to it at the end."""

from __future__ import annotations

import logging
import os
import time
from collections import deque
from collections.abc import Callable

from hookspecs.events import EngineFailed, EngineStopping, Event

from flight_recorder.directory import RecordDirectory
from flight_recorder.record import Entry, Head, lines

__all__ = ["Recorder"]

# Below `framework`: of other loggers the command line and engine processes show warnings only.
logger = logging.getLogger("framework.flight_recorder")


class Recorder:
    """Any thread: to append to a deque is atomic."""

    def __init__(
        self,
        directory: RecordDirectory,
        max_events: int,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`clock`: wall clock, in seconds."""
        self._directory = directory
        self._clock = clock
        self._ring: deque[Entry] = deque(maxlen=max_events)
        self._num_events = 0
        self._said = False

    def note(self, event: Event) -> None:
        """Keep it. Events do not change, so nothing is copied or encoded before a record is
        written, which for most engines is never."""
        self._ring.append((self._clock(), event))
        self._num_events += 1

    def write(self, event: EngineFailed | EngineStopping) -> None:
        """Write a record. Raises nothing: a directory that can not be written is logged, once."""
        failed = isinstance(event, EngineFailed)
        entries = list(self._ring)
        now = self._clock()
        head = Head(
            record="failed" if failed else "stopped",
            time=now,
            pid=os.getpid(),
            engine_index=event.engine_index,
            reason=event.error if isinstance(event, EngineFailed) else event.reason,
            plugin=event.plugin if isinstance(event, EngineFailed) else None,
            num_events=len(entries),
            num_forgotten=self._num_events - len(entries),
        )
        try:
            path = self._directory.write(event.engine_index, now, lines(head, entries))
        except (OSError, ValueError) as error:
            if not self._said:
                self._said = True
                logger.error(
                    "the flight record of engine %d could not be written: %s: %s",
                    event.engine_index,
                    type(error).__name__,
                    error,
                )
            return
        level = logging.ERROR if failed else logging.INFO
        logger.log(level, "flight record of engine %d: %s", event.engine_index, path)
