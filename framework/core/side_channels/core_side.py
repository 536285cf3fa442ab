"""`CoreSide`: messages go out with a step's decision, replies come with its result."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable

from framework.core.side_channels.halves import Halves
from hookspecs.contracts.side_channel import CoreHalf
from hookspecs.events import PluginFailed
from hookspecs.types.step import ModelRunnerOutput, SchedulerOutput

__all__ = ["CoreSide"]

logger = logging.getLogger("framework.core")


class CoreSide:
    """The core halves of all selected channels, and what observers are to hear of the worker
    halves in this process, which may run in another thread. Core process, main thread."""

    def __init__(self, halves: Halves[CoreHalf], tell: Callable[[PluginFailed], object]) -> None:
        """`tell`: tells observers, which are called in this thread only."""
        self._halves = halves
        self._tell = tell
        self._failures: deque[PluginFailed] = deque()
        self._warned = False

    def __bool__(self) -> bool:
        """Whether anything is to be sent."""
        return bool(self._halves)

    def note_failure(self, failure: PluginFailed) -> None:
        """Of a worker half. Any thread: observers hear of it after the step, or at the end."""
        self._failures.append(failure)

    def send(self, scheduled: SchedulerOutput) -> None:
        """Fill in the messages of a step that was decided and checked, and has rows."""
        scheduled.side_channel = self._halves.collect(
            "message", lambda half: half.message(scheduled)
        )

    def receive(self, scheduled: SchedulerOutput, result: ModelRunnerOutput) -> None:
        """Hand out what came with a result that was checked."""
        if self._failures:
            self._tell_failures()
        if not result.side_channel:
            return
        strangers = result.side_channel.keys() - self._halves.names
        if strangers and not self._warned:
            self._warned = True
            logger.warning(
                "a worker sent side-channel messages as %s, which engine.side_channels does not "
                "name; such messages are ignored, and this is said once",
                sorted(map(str, strangers)),
            )
        self._halves.deliver(
            "on_reply",
            result.side_channel,
            lambda half, reply: half.on_reply(scheduled, reply),
            to_all=False,
        )

    def close(self) -> None:
        """The last call of each half, after that of worker halves. Safe to call twice."""
        try:
            self._halves.close()
        finally:
            self._tell_failures()

    def _tell_failures(self) -> None:
        while self._failures:
            self._tell(self._failures.popleft())
