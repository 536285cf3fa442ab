"""`ControlPlane`: in which state an engine core is, and which commands wait for it to change.

Core process, main thread. What operations do in which state is in `transitions`.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future
from typing import Any, Final

from hookspecs.errors import CommandError, FrameworkError
from hookspecs.types.commands import CommandArguments
from hookspecs.types.control import EngineState, PauseMode, WakeTag

__all__ = ["MEMORY", "Call", "ControlPlane"]

MEMORY: Final = (WakeTag.WEIGHTS, WakeTag.KV_CACHE)
"""What a worker gives back when it sleeps, in the order of waking."""
_SCHEDULABLE: Final = (EngineState.RUNNING, EngineState.PAUSING, EngineState.DRAINING)


class Call:
    """A command that was given, and the future of its answer."""

    __slots__ = ("arguments", "future")

    def __init__(self, arguments: CommandArguments) -> None:
        self.arguments = arguments
        self.future: Future[Any] = Future()
        # Nobody can cancel what the engine has begun.
        self.future.set_running_or_notify_cancel()

    def fail(self, error: BaseException) -> None:
        """It ends with an error, unless it has ended."""
        if not self.future.done():
            self.future.set_exception(error)


class ControlPlane:
    """Facts and pending commands; `framework.core.operations` changes them."""

    def __init__(self) -> None:
        self.state = EngineState.RUNNING
        self.alive = True
        """Neither dead nor stopped."""
        self.schedulable = True
        """Whether requests may run."""
        self.pause_mode: PauseMode | None = None
        """None unless it is pausing, paused, sleeping or waking."""
        self.sleep_level: int | None = None
        """None while awake."""
        self.asleep: tuple[WakeTag, ...] = ()
        """What is not back yet."""
        self.weights_version = ""
        self.drain_deadline: float | None = None
        """Seconds, clock of the kernel."""
        self.pending: deque[Call] = deque()
        """Pauses and sleeps while pausing, drains while draining; in order."""
        self.changed = False
        """The state was changed, and front ends have not been told."""

    @property
    def memory_asleep(self) -> tuple[WakeTag, ...]:
        """What of the workers' memory is asleep."""
        return tuple(tag for tag in MEMORY if tag in self.asleep)

    def enter(self, state: EngineState) -> None:
        """Change the state; what belongs to other states is forgotten."""
        self.changed = True
        self.state = state
        self.alive = state not in (EngineState.DEAD, EngineState.STOPPED)
        self.schedulable = state in _SCHEDULABLE
        if state in (EngineState.RUNNING, EngineState.DRAINING):
            self.pause_mode = None
        if state in (EngineState.RUNNING, EngineState.PAUSING, EngineState.PAUSED):
            self.asleep, self.sleep_level = (), None
        if state is EngineState.RUNNING:
            self.drain_deadline = None

    def take_changed(self) -> bool:
        """Whether the state was changed since the last call."""
        changed, self.changed = self.changed, False
        return changed

    def shorten_drain(self, deadline: float | None) -> None:
        """The earlier deadline counts."""
        if deadline is not None and not (
            self.drain_deadline is not None and self.drain_deadline <= deadline
        ):
            self.drain_deadline = deadline

    def supersede(self, command: str) -> None:
        """Pending commands fail: another one has taken back what they wait for."""
        self.fail_pending(CommandError(f"superseded by {command}"))

    def fail_pending(self, error: FrameworkError) -> None:
        """All pending commands end with an error."""
        while self.pending:
            self.pending.popleft().fail(error)
