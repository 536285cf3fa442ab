"""The table of configuration keys, read off the structs of `EngineConfig` once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec
from msgspec import inspect

from hookspecs.config import EngineConfig

__all__ = [
    "KEYS",
    "OPTIONS",
    "SECRETS",
    "SECTIONS",
    "Key",
    "allowed",
    "members",
    "optional",
    "setting_names",
]

OPTIONS: Final = "plugins.options"
"""The one key whose value is a tree of its own: options by plugin or provider name."""

SECRETS: Final = frozenset({"serving.api_keys"})
"""Keys whose values appear neither in `config show` nor in an error message."""


class Key(msgspec.Struct, frozen=True, kw_only=True):
    """One setting of the tree."""

    name: str
    """Dotted, e.g. `cache.block_size`."""
    annotation: Any
    """Type with its bounds, as msgspec converts to it."""
    kind: inspect.Type
    """The same, inspected, without descriptions."""


def _bare(kind: inspect.Type) -> inspect.Type:
    return kind.type if isinstance(kind, inspect.Metadata) else kind


def _keys() -> Iterator[Key]:
    for section in msgspec.structs.fields(EngineConfig):
        for field in msgspec.structs.fields(section.type):
            yield Key(
                name=f"{section.encode_name}.{field.encode_name}",
                annotation=field.type,
                kind=_bare(inspect.type_info(field.type)),
            )


KEYS: Final[dict[str, Key]] = {key.name: key for key in _keys()}
SECTIONS: Final[tuple[str, ...]] = EngineConfig.__struct_encode_fields__


def setting_names() -> list[str]:
    """All settings, dotted."""
    return list(KEYS)


def optional(kind: inspect.Type) -> bool:
    """Whether None is a value of the type."""
    return isinstance(kind, inspect.UnionType) and any(
        isinstance(_bare(member), inspect.NoneType) for member in kind.types
    )


def members(kind: inspect.Type) -> list[str]:
    """The words of an enumeration; none for other types."""
    return [str(member.value) for member in kind.cls] if isinstance(kind, inspect.EnumType) else []


def allowed(kind: inspect.Type) -> str:
    """The values of a type in words, for error messages: `an integer from 1 to 1024`."""
    match _bare(kind):
        case inspect.UnionType(types=types):
            return " or ".join(allowed(member) for member in types)
        case inspect.NoneType():
            return "none"
        case inspect.BoolType():
            return "true or false"
        case inspect.EnumType() as enumeration:
            return "one of " + ", ".join(members(enumeration))
        case inspect.IntType() as number:
            return "an integer" + _bounds(number)
        case inspect.FloatType() as number:
            return "a number" + _bounds(number)
        case inspect.StrType():
            return "a string"
        case inspect.VarTupleType(item_type=item, min_length=least):
            return f"a list, each item {allowed(item)}" + (f", at least {least}" if least else "")
        case inspect.DictType():
            return "a table"
        case other:
            return type(other).__name__.removesuffix("Type").lower()


def _bounds(number: inspect.IntType | inspect.FloatType) -> str:
    low, high = number.ge, number.le
    if low is not None and high is not None:
        return f" from {low} to {high}"
    words = (
        (number.ge, "at least"),
        (number.gt, "greater than"),
        (number.le, "at most"),
        (number.lt, "less than"),
    )
    said = [f"{word} {bound}" for bound, word in words if bound is not None]
    return " " + " and ".join(said) if said else ""
