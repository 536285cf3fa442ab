"""Whether msgspec can read values of a type, for all types that plugins declare."""

from __future__ import annotations

from typing import Any

import msgspec

from framework.plugins.failure import describe

__all__ = ["unreadable"]


def unreadable(kind: Any) -> str | None:
    """Why msgspec can not decode a type; None if it can. Annotations are resolved by running them,
    so that what is wrong with one comes as any exception: NameError for a name that only type
    checkers import, AttributeError, SyntaxError, TypeError for a type that msgspec does not know.
    """
    try:
        msgspec.msgpack.Decoder(kind)
    except Exception as error:
        return describe(error)
    return None
