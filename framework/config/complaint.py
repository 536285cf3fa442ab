"""What is wrong with values that are to fill a struct."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, TypeVar

import msgspec

from framework.config.suggest import suggestion

__all__ = ["WrongField", "convert_struct"]

S = TypeVar("S", bound=msgspec.Struct)

_PATH: Final = re.compile(r"(.*) - at (?:`key` in )?`\$(.*)`", re.DOTALL)
"""msgspec's message: what is wrong, and the path to it."""
_FIRST: Final = re.compile(r"\.([^.\[]+)")
_MISSING: Final = re.compile(r"Object missing required field `([^`]+)`")
_MAX_NAME: Final = 80
"""Characters of an unknown name that a message shows."""


class WrongField(Exception):
    """Values do not fit a struct. For callers within the framework, which turn it into an error of
    `hookspecs.errors`; its message says where it is and what is allowed, not the value."""

    def __init__(
        self, message: str, *, field: str | None, value: Any, where: str, what: str
    ) -> None:
        super().__init__(message)
        self.field = field
        """Of the struct; or what it has no field for, cut. None: values are no mapping by name."""
        self.value = value
        """What was given for the field, None where nothing was; all values without a field."""
        self.where = where
        """The place of the values, with the path below it."""
        self.what = what
        """The message without the place."""


def convert_struct(struct: type[S], values: Any, place: str, noun: str = "option") -> S:
    """The struct that plain `values` fill, checked by its types and bounds.

    `place`: what holds them, as users write it; `noun`: what users call a field. WrongField for
    the first one that is unknown, missing or wrong; TypeError for a struct that msgspec can not
    read.
    """
    known = struct.__struct_encode_fields__
    for name in values if isinstance(values, Mapping) else ():
        if name not in known:
            is_name = isinstance(name, str)
            shown = name[:_MAX_NAME] if is_name else name
            field, value = (shown, values[name]) if is_name else (None, values)
            what = (
                f"has no {noun} {shown!r}; there are: {', '.join(known) or 'none'}."
                f"{suggestion(str(shown), known)}"
            )
            raise WrongField(f"{place} {what}", field=field, value=value, where=place, what=what)
    try:
        return msgspec.convert(values, struct, strict=True)
    except msgspec.ValidationError as error:
        found = _PATH.fullmatch(str(error))
        what, path = found.groups() if found else (str(error), "")
        inner = _FIRST.match(path) if path else _MISSING.match(what)
        field = inner[1] if inner else None
        value = values.get(field) if isinstance(values, Mapping) else values
        where = place + path
        raise WrongField(
            f"{where}: {what}", field=field, value=value, where=where, what=what
        ) from error
