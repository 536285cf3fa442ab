"""Entries for structs, enumerations and interfaces, the same on every page."""

from __future__ import annotations

from abc import ABC
from collections.abc import Iterable
from enum import Enum
from types import ModuleType
from typing import Any

import msgspec

from framework.docs.markdown import code, code_block, prose, table
from framework.docs.source import Field, Method, aliases, class_source, fields_of

__all__ = ["alias_entries", "class_entry", "fields_table", "members_table", "method_flags"]


def alias_entries(module: ModuleType) -> list[str]:
    """A line for each type alias of a module."""
    return [
        f"`{name}` is `{text}`. {prose(doc)}".strip()
        for name, (text, doc) in aliases(module).items()
    ]


def class_entry(cls: type[Any], level: int) -> list[str]:
    """Heading of the class, docstring, fields or members, methods."""
    source = class_source(cls)
    blocks = [f"{'#' * level} {cls.__name__}", prose(source.doc)]
    if issubclass(cls, Enum):
        blocks.append(members_table(source.fields))
    elif issubclass(cls, msgspec.Struct):
        blocks.append(fields_table(fields_of(cls)))
    elif source.fields:
        blocks.append(fields_table(source.fields))
    for method in source.methods:
        blocks.append(code_block(method.signature))
        if ABC in cls.__bases__:  # plugins implement it, so they need to know which they must
            blocks.append(f"*{method_flags(method)}*")
        elif "property" in method.decorators:
            blocks.append("*property*")
        blocks.append(prose(method.doc))
    return blocks


def fields_table(fields: Iterable[Field]) -> str:
    """Name, type, default and meaning of each; a dash where a value must be given."""
    rows = [
        (
            code(field.name),
            code(field.annotation),
            "-" if field.default is None else code(field.default),
            prose(field.doc),
        )
        for field in fields
    ]
    return table(("field", "type", "default", "meaning"), rows) if rows else ""


def members_table(members: Iterable[Field]) -> str:
    """Name, value and meaning of each member of an enumeration."""
    rows = [
        (code(member.name), code(member.default or ""), prose(member.doc)) for member in members
    ]
    return table(("member", "value", "meaning"), rows) if rows else ""


def method_flags(method: Method) -> str:
    """`abstract`, `property` and so on, in one word each."""
    flags = [
        "abstract" if "abstractmethod" in method.decorators else "has a default",
        *(word for word in ("property", "classmethod") if word in method.decorators),
    ]
    return ", ".join(flags)
