"""Side channels: a plugin's half in the core and its half in each worker, which exchange a
message with every step.

The messages travel in the kernel's own structs (`SchedulerOutput.side_channel`,
`ModelRunnerOutput.side_channel`), so they arrive with the step they belong to, whatever executor
runs the workers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Final

from hookspecs.contracts.base import Context
from hookspecs.types.step import ModelRunnerOutput, SchedulerOutput

__all__ = ["MAX_SIDE_CHANNEL_BYTES", "CoreHalf", "SideChannel", "SideChannelContext", "WorkerHalf"]

MAX_SIDE_CHANNEL_BYTES: Final = 1 << 20
"""Of one message, encoded."""


class SideChannelContext(Context, frozen=True, kw_only=True):
    """Context of a side channel, in either process."""

    engine_index: int = 0
    rank: int | None = None
    """Of the worker; None in the core process."""


class CoreHalf(ABC):
    """Core process, main thread. A half that raises, or whose message can not be encoded or is
    too large, is detached and counted: its steps go on without it."""

    @abstractmethod
    def message(self, scheduled: SchedulerOutput) -> Any:
        """What the worker half gets with this step, an instance of `SideChannel.Message`; None:
        nothing. `scheduled` is decided and checked, and not to be changed. Only steps with
        rows."""

    def on_reply(self, scheduled: SchedulerOutput, reply: Any) -> None:
        """What the worker half answered to this step, an instance of `SideChannel.Reply`; not
        called for None. Of several workers the one whose tokens are used."""
        return

    def close(self) -> None:
        """The engine stops. The last call."""
        return


class WorkerHalf(ABC):
    """Worker process, the worker's thread, which with some executors is a second thread of the core
    process. Detached and counted like the other half; observers are told in the main thread."""

    @abstractmethod
    def on_step(self, scheduled: SchedulerOutput, message: Any) -> None:
        """Before the forward of a step. `message`: of the core half, None if it sent none. With an
        executor that has several steps in flight the next one may begin before this one's reply."""

    def reply(self, scheduled: SchedulerOutput, output: ModelRunnerOutput) -> Any:
        """After a step was sampled: what the core half gets, an instance of
        `SideChannel.Reply`; None: nothing. `scheduled`: the step that `on_step` was called with,
        the oldest of which there was no reply. Neither is to be changed."""
        return None

    def close(self) -> None:
        """The worker shuts down. The last call."""
        return


class SideChannel(ABC):
    """What a provider makes: the pair of halves, each created in its own process. The provider
    is constructed once in the core process and once in each worker process; both halves live in
    one process where the executor runs its worker there, and share nothing all the same."""

    Message: ClassVar[Any]
    """A type that msgspec encodes: from the core half to the worker half."""
    Reply: ClassVar[Any] = None
    """The same for the way back; None: there are no replies."""

    def __init__(self, context: SideChannelContext) -> None:
        self.context = context

    @abstractmethod
    def create_core(self) -> CoreHalf:
        """The half of the core process."""

    @abstractmethod
    def create_worker(self) -> WorkerHalf:
        """The half of a worker process."""
