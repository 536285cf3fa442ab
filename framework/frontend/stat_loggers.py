"""`StatLoggerManager`: hands statistics to all stat loggers, none of which can hurt a request."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping

from framework.plugins.calls import Calls
from framework.plugins.failure import describe
from hookspecs.contracts.stats import StatLogger
from hookspecs.events import PluginFailed
from hookspecs.info import ProcessRole
from hookspecs.types.stats import IterationStats, SchedulerStats

__all__ = ["StatLoggerManager", "close_stat_logger"]

logger = logging.getLogger(__name__)


class StatLoggerManager:
    """A logger that raises is detached: said once with traceback, counted, observers told.

    Front-end process, one thread."""

    def __init__(
        self,
        loggers: Mapping[str, StatLogger],
        *,
        calls: Calls,
        interval_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`loggers`: by provider name. `interval_s`: between calls of `report`."""
        self._loggers = dict(loggers)
        self._calls = calls
        self._interval_s = interval_s
        self._clock = clock
        self._reported_at = clock()
        self.failures: Counter[str] = Counter()
        """Provider name to how often it raised."""

    @property
    def names(self) -> list[str]:
        """The loggers that are attached."""
        return list(self._loggers)

    def record(
        self,
        scheduler: SchedulerStats | None,
        iteration: IterationStats | None,
        engine_index: int = 0,
    ) -> None:
        """What one batch of outputs brought; reports if the interval has passed."""
        self._each(lambda each: each.record(scheduler, iteration, engine_index))
        self.report_if_due()

    def report_if_due(self) -> None:
        """`report` of every logger if the interval has passed. Call it also when idle."""
        now = self._clock()
        if now - self._reported_at >= self._interval_s:
            self._reported_at = now
            self._each(lambda each: each.report())

    def close(self) -> None:
        """The last report, then the last call. Safe to call twice."""
        self._each(lambda each: each.report())
        self._each(lambda each: each.close())
        self._loggers.clear()

    def _each(self, call: Callable[[StatLogger], None]) -> None:
        for name, each in list(self._loggers.items()):
            try:
                call(each)
            except Exception as error:
                del self._loggers[name]
                self.failures[name] += 1
                logger.exception("stat logger %r raised and is detached", name)
                close_stat_logger(name, each)
                self._calls.on_plugin_failed(
                    PluginFailed(
                        plugin=each.context.plugin,
                        hook="register_stat_loggers",
                        error=describe(error),
                        action="detached",
                        role=ProcessRole.FRONTEND,
                    )
                )


def close_stat_logger(name: str, stat_logger: StatLogger) -> None:
    """Let it give back what it holds, after another failure; its own is logged."""
    try:
        stat_logger.close()
    except Exception:
        logger.exception("stat logger %r raised when it was closed", name)
