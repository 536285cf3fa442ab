"""How the processes of this project end, as their exit codes."""

from __future__ import annotations

from enum import IntEnum

__all__ = ["ExitCode"]


class ExitCode(IntEnum):
    """Exit codes of child processes; 70 is EX_SOFTWARE of sysexits.h."""

    STOPPED = 0
    """Told to stop, and did."""
    START_FAILED = 1
    """The reason was sent to the parent."""
    ENGINE_FAILED = 70
    """A fatal error, which was announced to all front ends."""
    PARENT_DIED = 71
    """The parent process is gone."""
