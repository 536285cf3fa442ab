"""The states of an engine core and how requests are treated by a pause."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["EngineState", "PauseMode"]


class EngineState(StrEnum):
    """RUNNING -> PAUSING -> PAUSED -> SLEEPING -> WAKING -> RUNNING; and the others."""

    STARTING = "starting"
    RUNNING = "running"
    PAUSING = "pausing"
    PAUSED = "paused"
    SLEEPING = "sleeping"
    WAKING = "waking"
    DRAINING = "draining"
    RECONFIGURING = "reconfiguring"
    STOPPED = "stopped"
    DEAD = "dead"


class PauseMode(StrEnum):
    """What a pause does to requests in flight. New requests always wait."""

    ABORT = "abort"
    """They end with finish reason `abort`."""
    WAIT = "wait"
    """They run to their end."""
    KEEP = "keep"
    """They are frozen in place and go on after resume."""
