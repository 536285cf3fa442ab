"""`Halves`: what they give is encoded and checked, what they get is decoded, and one that fails is
detached. What counts as a failure is said in `framework.plugins.failure`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from time import perf_counter
from typing import Any, Final, Generic, NamedTuple, TypeVar

from framework.core.side_channels.message_type import MessageType
from framework.plugins.counters import Counter
from framework.plugins.failure import describe
from hookspecs.contracts.side_channel import CoreHalf, WorkerHalf
from hookspecs.events import PluginFailed
from hookspecs.info import ProcessRole

__all__ = ["HOOK", "Half", "Halves"]

HOOK: Final = "register_side_channels"
"""The hook under which calls and failures are counted."""

logger = logging.getLogger("framework.core")

H = TypeVar("H", bound=CoreHalf | WorkerHalf)


class Half(NamedTuple, Generic[H]):
    """A half, and what it sends and receives."""

    half: H
    plugin: str
    sends: MessageType
    receives: MessageType
    counter: Counter
    """Of the thread that calls it."""


class Halves(Generic[H]):
    """Those of one process and one side. One thread.

    One that fails is detached for good: said once with traceback, closed, counted, `tell`
    called. Its other half is not told.
    """

    def __init__(
        self,
        halves: Mapping[str, Half[H]],
        *,
        tell: Callable[[PluginFailed], object],
        side: str,
        role: ProcessRole,
    ) -> None:
        """`halves`: by the name that the configuration has for the channel. `tell`: what observers
        are to hear, in the thread of the call. `side`: what they are called in the log."""
        self.names: Collection[str] = frozenset(halves)
        """Of all, also of those that were detached."""
        self._halves = dict(halves)
        self._tell = tell
        self._side = side
        self._role = role

    def __bool__(self) -> bool:
        """Whether any is attached."""
        return bool(self._halves)

    def collect(self, method: str, call: Callable[[H], Any]) -> dict[str, bytes]:
        """What each gives, encoded; nothing of one that gives None or fails."""
        collected: dict[str, bytes] = {}

        def ask(name: str, entry: Half[H]) -> None:
            given = call(entry.half)
            if given is not None:
                collected[name] = entry.sends.encode(given)

        for name, entry in tuple(self._halves.items()):
            self._guard(name, entry, method, ask)
        return collected

    def deliver(
        self,
        method: str,
        received: Mapping[str, bytes],
        call: Callable[[H, Any], object],
        *,
        to_all: bool,
    ) -> None:
        """Hand each what came for it. `to_all`: None to those for which nothing came."""

        def tell(name: str, entry: Half[H]) -> None:
            data = received.get(name)
            call(entry.half, None if data is None else entry.receives.decode(data))

        for name, entry in tuple(self._halves.items()):
            if to_all or name in received:
                self._guard(name, entry, method, tell)

    def close(self) -> None:
        """The last call of each. Safe to call twice."""
        halves, self._halves = self._halves, {}
        for name, entry in halves.items():
            self._close(name, entry)

    def _guard(
        self, name: str, entry: Half[H], method: str, call: Callable[[str, Half[H]], None]
    ) -> None:
        counter = entry.counter
        counter.calls += 1
        begin = perf_counter()
        try:
            call(name, entry)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            del self._halves[name]
            self._failed(name, entry, method, error, "detached")
            self._close(name, entry)
        finally:
            counter.seconds += perf_counter() - begin

    def _close(self, name: str, entry: Half[H]) -> None:
        try:
            entry.half.close()
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            self._failed(name, entry, "close", error, "logged")

    def _failed(
        self, name: str, entry: Half[H], method: str, error: BaseException, action: str
    ) -> None:
        what = describe(error)
        logger.error(
            "the %s half of the side channel %r of plugin %r failed in %s%s: %s",
            self._side,
            name,
            entry.plugin,
            method,
            " and is detached; steps go on without it" if action == "detached" else "",
            what,
            exc_info=error,
        )
        entry.counter.errors += 1
        self._tell(
            PluginFailed(plugin=entry.plugin, hook=HOOK, error=what, action=action, role=self._role)
        )
