"""The states of an engine core, and what control operations are given and give back."""

from __future__ import annotations

from enum import StrEnum

import msgspec

__all__ = ["EngineHealth", "EngineState", "EngineStatus", "PauseMode", "WakeTag"]


class EngineState(StrEnum):
    """RUNNING -> PAUSING -> PAUSED -> SLEEPING -> WAKING -> RUNNING; and the others. The table of
    `docs/control.md` says what each operation does in each state."""

    RUNNING = "running"
    PAUSING = "pausing"
    """Requests that started run to their end; no other starts."""
    PAUSED = "paused"
    """Nothing runs; requests that arrive wait."""
    SLEEPING = "sleeping"
    """Paused, and memory is given back; requests that arrive are refused."""
    WAKING = "waking"
    """Some of the memory is back; requests that arrive are refused."""
    DRAINING = "draining"
    """Requests run to their end; those that arrive are refused. Shutdown or resume follows."""
    RECONFIGURING = "reconfiguring"
    """Weights are being replaced, between two steps."""
    STOPPED = "stopped"
    DEAD = "dead"
    """Stopped by an error."""


class PauseMode(StrEnum):
    """What a pause does to requests in the engine. Requests that arrive later always wait."""

    ABORT = "abort"
    """All of them end with finish reason `abort`."""
    WAIT = "wait"
    """Those that have started run to their end; the others wait."""
    KEEP = "keep"
    """They are frozen where they are and go on after resume."""


class WakeTag(StrEnum):
    """What `wake_up` can bring back."""

    WEIGHTS = "weights"
    KV_CACHE = "kv_cache"
    SCHEDULING = "scheduling"


class EngineStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of every control operation that has nothing else to say."""

    engine_index: int = 0
    state: EngineState
    pause_mode: PauseMode | None = None
    """How it was paused; None unless it is pausing, paused, sleeping or waking."""
    sleep_level: int | None = None
    """None while it is awake."""
    asleep: tuple[WakeTag, ...] = ()
    """What is not back yet, while sleeping or waking."""
    num_running: int = 0
    num_waiting: int = 0
    step: int = 0
    """Steps that computed something, since start."""
    weights_version: str = ""
    """The label of the last weight update."""


class EngineHealth(msgspec.Struct, frozen=True, kw_only=True):
    """What a front end knows of its engines right now."""

    live: bool
    """The process does its work; False: restart it."""
    ready: bool
    """New requests are taken and make progress."""
    reason: str = ""
    """Why not."""
