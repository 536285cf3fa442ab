"""The words for an exception of a plugin."""

from __future__ import annotations

__all__ = ["describe"]


def describe(error: BaseException) -> str:
    """Type and message. The type alone where the message can not be made: an exception whose
    `__str__` raises must not get past what isolates plugins."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return type(error).__name__
