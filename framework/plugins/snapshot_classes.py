"""The classes of the contract as data: contracts, structs, enumerations, errors.

Annotations are given as they are written, defaults as text.
"""

from __future__ import annotations

import enum
import inspect
from types import FunctionType
from typing import Any

import msgspec

from framework.plugins.specs import HOOKS
from hookspecs.hooks import EngineHooks

__all__ = ["class_entry", "signature_text", "value_text"]


def class_entry(cls: type) -> tuple[str, dict[str, Any]]:
    """The section of a class and its entry."""
    if issubclass(cls, msgspec.Struct | tuple):
        return "structs", _struct(cls)
    if issubclass(cls, enum.Enum):
        return "enums", {member.name: member.value for member in cls}
    if issubclass(cls, Exception):
        bases = [base.__name__ for base in cls.__mro__[1:-1]]
        return "errors", {"bases": bases, "methods": _methods(cls)}
    methods = _methods(cls)
    if cls is EngineHooks:  # Hooks have a section of their own.
        methods = {name: entry for name, entry in methods.items() if name not in HOOKS}
    return "contracts", {
        "protocol": _is_protocol(cls),
        "attributes": _attributes(cls),
        "methods": methods,
    }


def signature_text(function: Any) -> str:
    """As written."""
    return str(inspect.signature(function))


def value_text(value: object) -> str:
    """A default or constant; equal values give equal text in every process."""
    match value:
        case enum.Enum():
            return f"{type(value).__name__}.{value.name}"
        case msgspec._core.Factory():
            return f"{value.factory.__qualname__}()"
        case frozenset() | set():
            return f"{type(value).__name__}({{{', '.join(sorted(map(value_text, value)))}}})"
        case tuple():
            return f"({', '.join(map(value_text, value))})"
        case type() | FunctionType():
            return value.__qualname__
    return repr(value)


def _struct(cls: type[Any]) -> dict[str, Any]:
    """Also of a named tuple. `positional`: the fields that can be given by position, in order."""
    annotations: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        annotations |= inspect.get_annotations(base)
    is_tuple = issubclass(cls, tuple)
    given: dict[str, Any]
    if is_tuple:
        names, given = cls._fields, cls._field_defaults
    else:
        # Not msgspec.structs.fields: it evaluates annotations, and some name torch.
        names, defaults = cls.__struct_fields__, cls.__struct_defaults__
        given = {
            name: default
            for name, default in zip(names[len(names) - len(defaults) :], defaults, strict=True)
            if default is not msgspec.NODEFAULT
        }
    fields = {}
    for name in names:
        fields[name] = {"type": _annotation(annotations[name])}
        if name in given:
            fields[name]["default"] = value_text(given[name])
    return {
        "tuple": is_tuple,
        "frozen": is_tuple or cls.__struct_config__.frozen,
        "positional": list(cls.__match_args__),
        "fields": fields,
        "methods": _methods(cls),
    }


def _attributes(cls: type) -> dict[str, Any]:
    """What a contract annotates or sets in its body, that of bases in hookspecs included."""
    found: dict[str, Any] = {}
    for base in _own_bases(cls):
        annotations, members = inspect.get_annotations(base), vars(base)
        plain = [name for name, member in members.items() if _is_plain(member)]
        for name in dict.fromkeys([*annotations, *plain]):
            if name.startswith("_"):
                continue
            found[name] = {"type": _annotation(annotations.get(name, ""))}
            if name in members:
                found[name]["default"] = value_text(members[name])
    return found


def _is_plain(member: object) -> bool:
    return not (inspect.isroutine(member) or isinstance(member, property))


def _methods(cls: type) -> dict[str, Any]:
    """Public and special methods and properties, those of bases in hookspecs included."""
    methods: dict[str, Any] = {}
    for base in _own_bases(cls):
        for name, member in vars(base).items():
            special = name.startswith("__") and name.endswith("__") and name != "__post_init__"
            entry = _method(member) if special or not name.startswith("_") else None
            if entry is not None:
                methods[name] = entry
    return methods


def _own_bases(cls: type) -> list[type]:
    """Of hookspecs, the farthest first."""
    return [base for base in reversed(cls.__mro__) if base.__module__.startswith("hookspecs")]


def _is_protocol(cls: type) -> bool:
    return bool(getattr(cls, "_is_protocol", False))


def _method(member: object) -> dict[str, Any] | None:
    shape = "method"
    if isinstance(member, property):
        shape, member = "property", member.fget
    elif isinstance(member, classmethod | staticmethod):
        shape, member = type(member).__name__, member.__func__
    # Others are made by typing, msgspec or collections.
    if not inspect.isfunction(member) or not member.__module__.startswith("hookspecs"):
        return None
    return {
        "shape": shape,
        "signature": signature_text(member),
        "abstract": bool(getattr(member, "__isabstractmethod__", False)),
    }


def _annotation(annotation: Any) -> str:
    """As written; typing.NamedTuple wraps it."""
    return str(getattr(annotation, "__forward_arg__", annotation))
