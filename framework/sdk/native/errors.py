"""The one way in which the door to compiled kernels fails."""

from __future__ import annotations

from hookspecs.errors import FrameworkError

__all__ = ["KernelsUnavailable"]


class KernelsUnavailable(FrameworkError):
    """Compiled kernels can not be built or loaded here; the message says why and what to do."""
