"""`StatLoggerManager`: hands statistics to all stat loggers."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from framework.frontend.sinks import Sinks
from framework.plugins.calls import Calls
from hookspecs.contracts.stats import Exposition, StatLogger
from hookspecs.types.stats import IterationStats, SchedulerStats

__all__ = ["StatLoggerManager"]


class StatLoggerManager(Sinks[StatLogger]):
    """Front-end process, one thread."""

    def __init__(
        self,
        loggers: Mapping[str, StatLogger],
        *,
        calls: Calls,
        interval_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`loggers`: by provider name. `interval_s`: between calls of `report`."""
        super().__init__(loggers, calls=calls, kind="stat logger", hook="register_stat_loggers")
        self._interval_s = interval_s
        self._clock = clock
        self._reported_at = clock()

    def record(
        self,
        scheduler: SchedulerStats | None,
        iteration: IterationStats | None,
        engine_index: int = 0,
    ) -> None:
        """What one batch of outputs brought; reports if the interval has passed."""
        self._each(lambda each: each.record(scheduler, iteration, engine_index))
        self.report_if_due()

    def record_rejection(self, reason: str) -> None:
        """A request was refused before it reached an engine."""
        self._each(lambda each: each.record_rejection(reason))

    def expositions(self) -> list[Exposition]:
        """The metrics of every logger that has a text form for collectors."""
        return [text for text in self._each(_exposition) if text is not None]

    @property
    def due_in_s(self) -> float:
        """Seconds until the next report is due."""
        return max(0.0, self._reported_at + self._interval_s - self._clock())

    def report_if_due(self) -> None:
        """`report` of every logger if the interval has passed. Call it also when idle."""
        now = self._clock()
        if now - self._reported_at >= self._interval_s:
            self._reported_at = now
            self._each(lambda each: each.report())

    def close(self) -> None:
        """The last report, then the last call. Safe to call twice."""
        self._each(lambda each: each.report())
        super().close()


def _exposition(logger: StatLogger) -> Exposition | None:
    """Checked, since a wrong one would spoil the answer that all loggers share."""
    made: object = logger.exposition()
    if made is None:
        return None
    if not isinstance(made, Exposition):
        raise TypeError(f"exposition() gave {type(made).__name__}, not Exposition or None")
    kind, body = made.content_type, made.body
    if not (isinstance(kind, str) and kind and kind.isascii() and kind.isprintable()):
        raise ValueError(f"the content_type of an exposition is {kind!r}, not printable ASCII text")
    if not isinstance(body, bytes):
        raise TypeError(f"the body of an exposition is {type(body).__name__}, not bytes")
    return made
