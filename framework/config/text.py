"""Text of the environment and the command line to values of a field's type."""

from __future__ import annotations

import re
import tomllib
from typing import Any, Final

import msgspec
from msgspec import inspect

from framework.config.keys import Key, optional

__all__ = ["parse_any", "parse_text"]

NONE_IS_A_WORD: Final = frozenset({"model.tokenizer"})
"""Keys that give the text `none` a meaning of their own."""

TRUE: Final = frozenset({"true", "1"})
FALSE: Final = frozenset({"false", "0"})
MAX_DIGITS: Final = 1000
"""Far beyond every bound; Python converts no more than 4300."""
INTEGER: Final = re.compile(r"[+-]?[0-9]+(_[0-9]+)*")


def parse_text(text: str, key: Key) -> Any:
    """The value that `text` spells for `key`; `text` itself where it spells none.

    What comes back is still to be checked against the bounds. `none` is None for optional
    fields; a list is separated by commas, or JSON when it begins with `[`.
    """
    kind = key.kind
    if isinstance(kind, inspect.UnionType) and optional(kind):
        if text.casefold() == "none" and key.name not in NONE_IS_A_WORD:
            return None
        kind = next(member for member in kind.types if not isinstance(member, inspect.NoneType))
    match kind:
        case inspect.BoolType():
            word = text.casefold()
            return True if word in TRUE else False if word in FALSE else text
        case inspect.IntType():
            return int(text) if INTEGER.fullmatch(text) and len(text) <= MAX_DIGITS else text
        case inspect.FloatType():
            try:
                return float(text)
            except ValueError:
                return text
        case inspect.VarTupleType():
            return _parse_list(text)
        case inspect.DictType():
            return parse_any(text)
        case _:
            return text


def _parse_list(text: str) -> Any:
    if text.startswith("["):
        try:
            return msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError):
            return text
    return [item.strip() for item in text.split(",")] if text.strip() else []


def parse_any(text: str) -> Any:
    """JSON, else a TOML value, else the text itself: for options, whose types are not yet known.

    Dates stay text: an option that wants one reads it from a string.
    """
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        pass
    try:
        table = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):  # no TOML, a number of too many digits
        return text
    value = table["value"]
    plain = isinstance(value, bool | int | float | str | list | dict)
    return value if plain and len(table) == 1 else text
