"""`Sinks`: plugin objects that are told what happened, none of which can hurt a request."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

from framework.plugins.calls import Calls
from framework.plugins.failure import describe
from hookspecs.contracts.stats import StatLogger, Tracer
from hookspecs.events import PluginFailed
from hookspecs.info import ProcessRole

__all__ = ["Sinks", "close_sink"]

logger = logging.getLogger(__name__)

S = TypeVar("S", bound=StatLogger | Tracer)
T = TypeVar("T")


class Sinks(Generic[S]):
    """One that raises is detached: said once with traceback, counted, observers told. What counts
    as its failure is said in `framework.plugins.failure`.

    Front-end process, one thread."""

    def __init__(self, sinks: Mapping[str, S], *, calls: Calls, kind: str, hook: str) -> None:
        """`sinks`: by provider name. `kind`, `hook`: what they are called, and who offers them."""
        self._sinks: dict[str, S] = dict(sinks)
        self._calls = calls
        self._kind = kind
        self._hook = hook
        self.failures: Counter[str] = Counter()
        """Provider name to how often it raised."""

    @property
    def names(self) -> list[str]:
        """Those that are attached."""
        return list(self._sinks)

    def close(self) -> None:
        """The last call. Safe to call twice."""
        self._each(lambda sink: sink.close())
        self._sinks.clear()

    def _each(self, call: Callable[[S], T]) -> list[T]:
        """The answers of all that did not raise."""
        answers = []
        for name, sink in list(self._sinks.items()):
            try:
                answers.append(call(sink))
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                self._detach(name, sink, error)
        return answers

    def _detach(self, name: str, sink: S, error: BaseException) -> None:
        del self._sinks[name]
        self.failures[name] += 1
        logger.error("%s %r raised and is detached", self._kind, name, exc_info=error)
        close_sink(self._kind, name, sink)
        self._calls.on_plugin_failed(
            PluginFailed(
                plugin=sink.context.plugin,
                hook=self._hook,
                error=describe(error),
                action="detached",
                role=ProcessRole.FRONTEND,
            )
        )


def close_sink(kind: str, name: str, sink: StatLogger | Tracer) -> None:
    """Let it give back what it holds, after another failure; its own is logged."""
    try:
        sink.close()
    except KeyboardInterrupt:
        raise
    except BaseException:
        logger.exception("%s %r raised when it was closed", kind, name)
