"""`CoreSide`: messages go out with a step's decision, replies come with its result."""

from __future__ import annotations

import logging

from framework.core.side_channels.halves import Halves
from hookspecs.contracts.side_channel import CoreHalf
from hookspecs.types.step import ModelRunnerOutput, SchedulerOutput

__all__ = ["CoreSide"]

logger = logging.getLogger("framework.core")


class CoreSide:
    """The core halves of all selected channels. Core process, main thread."""

    def __init__(self, halves: Halves[CoreHalf]) -> None:
        self._halves = halves
        self._warned = False

    def __bool__(self) -> bool:
        """Whether anything is to be sent."""
        return bool(self._halves)

    def send(self, scheduled: SchedulerOutput) -> None:
        """Fill in the messages of a step that was decided and checked, and has rows."""
        scheduled.side_channel = self._halves.collect(
            "message", lambda half: half.message(scheduled)
        )

    def receive(self, scheduled: SchedulerOutput, result: ModelRunnerOutput) -> None:
        """Hand out what came with a result that was checked."""
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
        """The last call of each half. Safe to call twice."""
        self._halves.close()
