"""What a front end knows of the life of its engine cores."""

from __future__ import annotations

import time
from collections.abc import Callable

from framework.transport.messages import Heartbeat
from hookspecs.config import EngineSection
from hookspecs.types.control import EngineHealth, EngineState
from hookspecs.types.stats import PluginCallStats

__all__ = ["VitalSigns"]

_SERVING = frozenset({EngineState.RUNNING})


class VitalSigns:
    """Of one engine core. Written by the thread that receives; may be read by any."""

    def __init__(
        self,
        engine_index: int,
        limits: EngineSection,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name = f"engine core {engine_index}"
        self._limits = limits
        self._clock = clock
        self._heard_at = clock()
        self._beat: Heartbeat | None = None
        self._beat_at = self._heard_at
        self.death: str | None = None
        """Why it is dead."""

    @property
    def state(self) -> EngineState:
        """As last told."""
        if self.death is not None:
            return EngineState.DEAD
        return EngineState.RUNNING if self._beat is None else self._beat.state

    @property
    def plugin_calls(self) -> list[PluginCallStats]:
        """As last told."""
        return [] if self._beat is None else self._beat.plugin_calls

    def heard(self) -> None:
        """Outputs came: it lives, and the step of the last heartbeat has ended."""
        self._heard_at = self._clock()

    def beat(self, heartbeat: Heartbeat) -> None:
        """A heartbeat came."""
        self._beat, self._beat_at = heartbeat, self._clock()
        self._heard_at = self._beat_at

    def health(self) -> EngineHealth:
        """Not ready when it is silent, does a command, has a step that takes too long, or is in a
        state that does not serve; not live when dead, or silent or in one step for
        `engine.stall_timeout_s`. A command takes as long as it takes."""
        if self.death is not None:
            return EngineHealth(live=False, ready=False, reason=f"{self._name}: {self.death}")
        now, limits = self._clock(), self._limits
        silent_s = now - self._heard_at
        if not silent_s <= limits.heartbeat_timeout_s:
            return EngineHealth(
                live=silent_s <= limits.stall_timeout_s,
                ready=False,
                reason=f"{self._name} gave no sign of life for {silent_s:.1f} s",
            )
        busy_s = self._busy_s(now)
        if busy_s and self._beat is not None and self._beat.command:
            reason = f"{self._name} has done {self._beat.command} for {busy_s:.0f} s"
            return EngineHealth(live=True, ready=False, reason=reason)
        if not busy_s <= limits.stall_timeout_s:
            return EngineHealth(
                live=False,
                ready=False,
                reason=f"{self._name} has been in one step for {busy_s:.0f} s",
            )
        if self.state not in _SERVING:
            return EngineHealth(live=True, ready=False, reason=f"{self._name} is {self.state}")
        return EngineHealth(live=True, ready=True)

    def _busy_s(self, now: float) -> float:
        if self._beat is None or not self._beat.busy_s or self._heard_at > self._beat_at:
            return 0.0
        return self._beat.busy_s + (now - self._beat_at)
