"""The words for an exception of a plugin.

What isolates plugins catches everything but KeyboardInterrupt, which is the user's: the signal
raises it, whatever code runs. SystemExit, CancelledError and GeneratorExit are a plugin's own, for
its code is called, not awaited.
"""

from __future__ import annotations

__all__ = ["describe"]


def describe(error: BaseException) -> str:
    """Type and message. The type alone where the message can not be made: an exception whose
    `__str__` raises must not get past what isolates plugins."""
    try:
        return f"{type(error).__name__}: {error}"
    except KeyboardInterrupt:
        raise
    except BaseException:
        return type(error).__name__
