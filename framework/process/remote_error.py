"""Errors that cross processes: as the name of a class of this project, and a text."""

from __future__ import annotations

from typing import Final

from framework.plugins.failure import describe
from hookspecs import errors
from hookspecs.errors import CommandError, FrameworkError, PluginError, RequestFailedError

__all__ = ["error_to_send", "printable", "remote_error"]

_KNOWN: Final[dict[str, type[FrameworkError]]] = {
    name: kind
    for name in errors.__all__
    if isinstance(kind := getattr(errors, name), type)
    and issubclass(kind, FrameworkError)
    and not issubclass(kind, RequestFailedError)  # is about a request, which has its own way
}


def error_to_send(error: BaseException) -> tuple[str, str]:
    """Name and text of the nearest class that `remote_error` knows; of other errors the name of
    their own class, and a text that begins with it. The text can be encoded, whatever it holds."""
    name, text = type(error).__name__, describe(error)
    for kind in type(error).__mro__:
        if _KNOWN.get(kind.__name__) is kind:
            name, text = kind.__name__, text.removeprefix(f"{name}: ")
            break
    return name, printable(text)


def printable(text: str) -> str:
    """The text with escapes for what UTF-8 can not hold, such as parts of odd file names."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def remote_error(
    error_type: str,
    message: str,
    *,
    plugin: str | None = None,
    otherwise: type[FrameworkError] = CommandError,
) -> FrameworkError:
    """The error to raise here, from what `error_to_send` gave; classes that are not known become
    `otherwise`. `plugin`: who caused it."""
    error = _KNOWN.get(error_type, otherwise)(message)
    if isinstance(error, PluginError):
        error.plugin = plugin
    return error
