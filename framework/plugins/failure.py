"""The words for an exception of a plugin.

What isolates plugins catches everything but KeyboardInterrupt, which is the user's: the signal
raises it, whatever code runs. SystemExit, CancelledError and GeneratorExit are a plugin's own, for
its code is called, not awaited.
"""

from __future__ import annotations

from typing import Final

__all__ = ["bounded", "describe"]

_MAX_CHARS: Final = 4096
"""Of a text: it is logged, sent to other processes and shown to users."""


def describe(error: BaseException) -> str:
    """Type and message, cut. The type alone where the message can not be made: an exception whose
    `__str__` raises must not get past what isolates plugins."""
    try:
        return bounded(f"{type(error).__name__}: {error}")
    except KeyboardInterrupt:
        raise
    except BaseException:
        return type(error).__name__


def bounded(text: str) -> str:
    """A text of an error, cut where it is longer than anybody reads."""
    if len(text) <= _MAX_CHARS:
        return text
    return f"{text[:_MAX_CHARS]}... ({len(text)} characters)"
