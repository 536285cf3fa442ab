"""The struct of arguments that an engine command declares."""

from __future__ import annotations

from typing import Any

from framework.plugins.manifest import is_options_struct
from framework.plugins.readable import unreadable

__all__ = ["wrong_arguments"]


def wrong_arguments(command: type[Any]) -> str | None:
    """What is wrong with the `Arguments` of a subclass of `EngineCommand`, if anything."""
    arguments = command.Arguments
    what = f"{command.__name__}.Arguments"
    if not is_options_struct(arguments):
        return f"{what} is {arguments!r}; it must be a msgspec.Struct class"
    config = arguments.__struct_config__
    lacks = [
        name
        for name, there in (
            ("frozen", config.frozen),
            ("forbid_unknown_fields", config.forbid_unknown_fields),
        )
        if not there
    ]
    if lacks:
        return f"{what} must be {' and '.join(lacks)}"
    why = unreadable(arguments)
    return None if why is None else f"{what} can not be read: {why}"
