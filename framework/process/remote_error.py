"""An error of another process, by its class where this project or Python knows it."""

from __future__ import annotations

from typing import Final

from hookspecs import errors
from hookspecs.errors import CommandError, FrameworkError, RequestFailedError

__all__ = ["remote_error"]

_KNOWN: Final[dict[str, type[FrameworkError]]] = {
    name: kind
    for name in errors.__all__
    if isinstance(kind := getattr(errors, name), type)
    and issubclass(kind, FrameworkError)
    and not issubclass(kind, RequestFailedError)  # is about a request, which has its own way
}


def remote_error(error_type: str, message: str) -> FrameworkError:
    """The error to raise here. Other classes become CommandError with both in its text."""
    kind = _KNOWN.get(error_type)
    return CommandError(f"{error_type}: {message}") if kind is None else kind(message)
