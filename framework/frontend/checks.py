"""Checks of values that a user gave: each raises InvalidRequestError naming field and value.

Range checks are written so that NaN fails; a bool is never taken for a number.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from hookspecs.errors import InvalidRequestError

__all__ = ["flag", "integer", "invalid", "items", "number", "plain", "shorten", "text", "token_ids"]

MAX_SHOWN: Final = 80
"""Characters of a value that an error shows."""
INT64_MIN: Final = -(2**63)
UINT64_MAX: Final = 2**64 - 1


def shorten(value: object) -> str:
    """`value` for a message: its repr, cut."""
    if isinstance(value, int) and value.bit_length() > 256:
        return f"an integer of {value.bit_length()} bits"
    if isinstance(value, (str, bytes)):
        cut = value[:MAX_SHOWN]
        return repr(cut) + (f"... ({len(value)} long)" if len(value) > MAX_SHOWN else "")
    if isinstance(value, (list, tuple, dict, set, frozenset)) and len(value) > 8:
        return f"a {type(value).__name__} of {len(value)} elements"
    try:
        shown = repr(value)
    except Exception:  # nested too deep, or an object's own __repr__
        return f"a {type(value).__name__}"
    return shown if len(shown) <= MAX_SHOWN else shown[:MAX_SHOWN] + "..."


def plain(value: object) -> object:
    """`value` for an error's attribute: itself if any JSON encoder can write it, else text."""
    match value:
        case None | bool():
            return value
        case int() if INT64_MIN <= value <= UINT64_MAX:
            return value
        case float() if math.isfinite(value):
            return value
        case str() if len(value) <= MAX_SHOWN:
            return value if encodable(value) else repr(value)
        case _:
            return shorten(value)


def invalid(param: str, value: object, allowed: str) -> InvalidRequestError:
    """The error for a value that is not among what is allowed."""
    return InvalidRequestError(
        f"{param} is {shorten(value)}; it must be {allowed}", param=param, value=plain(value)
    )


def encodable(value: str) -> bool:
    """Whether `value` has no lone surrogates, so that it can be written as UTF-8."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def integer(param: str, value: object, low: int, high: int, *, shown: str | None = None) -> int:
    """`value` if it is an int in [low, high]; `shown` words the bound."""
    allowed = f"an integer {shown or f'from {low} to {high}'}"
    if not isinstance(value, int) or isinstance(value, bool):
        raise invalid(param, value, allowed)
    if not (low <= value <= high):
        raise invalid(param, value, allowed)
    return value


def number(param: str, value: object, low: float, high: float, *, above_low: bool = False) -> float:
    """`value` if it is a finite number in [low, high], or in (low, high]."""
    allowed = f"a number in {'(' if above_low else '['}{low:g}, {high:g}]"
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise invalid(param, value, allowed)
    if not (low < value <= high if above_low else low <= value <= high):
        raise invalid(param, value, allowed)
    return value


def flag(param: str, value: object) -> None:
    """Raise unless `value` is True or False."""
    if not isinstance(value, bool):
        raise invalid(param, value, "true or false")


def text(param: str, value: object, max_chars: int, *, empty: bool = False) -> str:
    """`value` if it is a str of at most `max_chars` characters without lone surrogates."""
    if not isinstance(value, str):
        raise invalid(param, value, "a string")
    if not value and not empty:
        raise invalid(param, value, "a string that is not empty")
    if len(value) > max_chars:
        raise invalid(param, value, f"a string of at most {max_chars} characters")
    if not encodable(value):
        raise invalid(param, value, "valid Unicode text without lone surrogates")
    return value


def items(param: str, value: object, max_count: int, what: str) -> list[Any]:
    """`value` if it is a list of at most `max_count` elements."""
    if not isinstance(value, list):
        raise invalid(param, value, f"a list of {what}")
    if len(value) > max_count:
        raise InvalidRequestError(
            f"{param} has {len(value)} elements; at most {max_count} are allowed",
            param=param,
            value=len(value),
        )
    return value


def token_ids(param: str, value: Sequence[Any], vocab_size: int) -> None:
    """Raise unless every element is a token id of the model."""
    for position, token_id in enumerate(value):
        if type(token_id) is not int or not (0 <= token_id < vocab_size):
            raise InvalidRequestError(
                f"{param}[{position}] is {shorten(token_id)}; token ids of this model are "
                f"integers from 0 to {vocab_size - 1}",
                param=param,
                value=plain(token_id),
            )
