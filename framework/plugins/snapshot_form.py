"""What a snapshot must have so that those who compare snapshots can read it.

Fields that only a later version writes are allowed, and left as they are.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from framework.config.depth import is_nested_within
from framework.plugins.subjects import CLASS_SECTIONS, NAME_SECTIONS

__all__ = ["check_form"]

_MAX_DEPTH: Final = 32
"""Levels of lists and dicts; a snapshot has six."""

_Number = Annotated[int, Meta(ge=0, le=1_000_000)]
_Version = Annotated[str, Meta(pattern=r"\A[0-9]{1,6}\.[0-9]{1,6}\Z")]
_SECTION: Final = "|".join(("hooks", "kinds", *CLASS_SECTIONS, *NAME_SECTIONS))
_Subject = Annotated[str, Meta(pattern=rf"\A(?:{_SECTION}) ")]


class _Field(msgspec.Struct):
    type: str
    default: str | msgspec.UnsetType = msgspec.UNSET


class _Method(msgspec.Struct):
    shape: str
    signature: str
    abstract: bool


class _Entry(msgspec.Struct, kw_only=True):
    """Of any section whose entries are objects: what there is of this must have its form."""

    fields: dict[str, _Field] | msgspec.UnsetType = msgspec.UNSET
    attributes: dict[str, _Field] | msgspec.UnsetType = msgspec.UNSET
    methods: dict[str, _Method] | msgspec.UnsetType = msgspec.UNSET


class _Hook(_Entry, kw_only=True):
    signature: str
    tier: str
    roles: list[str]


class _Kind(_Entry, kw_only=True):
    hook: str
    contract: str
    context: str
    capabilities: str | None


class _Contract(_Entry, kw_only=True):
    protocol: bool
    attributes: dict[str, _Field]
    methods: dict[str, _Method]


class _Class(_Entry, kw_only=True):
    tuple: bool
    frozen: bool
    positional: list[str]
    fields: dict[str, _Field]
    methods: dict[str, _Method]


class _Error(_Entry, kw_only=True):
    bases: list[str]
    methods: dict[str, _Method]


class _Constant(_Entry, kw_only=True):
    type: str


class _Deprecated(msgspec.Struct):
    since: _Version
    removed_in: _Version
    instead: str


class _Snapshot(msgspec.Struct):
    api_version: tuple[_Number, _Number]
    hooks: dict[str, _Hook]
    kinds: dict[str, _Kind]
    contracts: dict[str, _Contract]
    structs: dict[str, _Class]
    enums: dict[str, dict[str, str | float | bool | None]]
    errors: dict[str, _Error]
    classes: dict[str, _Class]
    functions: dict[str, str]
    constants: dict[str, _Constant]
    aliases: dict[str, str]
    exports: dict[str, _Entry]
    deprecated: dict[_Subject, _Deprecated]


def check_form(given: Any) -> None:
    """msgspec.ValidationError, with the place, for decoded JSON that is no snapshot."""
    if not is_nested_within(_MAX_DEPTH, given):
        raise msgspec.ValidationError(f"It is nested more than {_MAX_DEPTH} levels deep")
    snapshot = msgspec.convert(given, _Snapshot)
    for name, kind in snapshot.kinds.items():
        if kind.hook not in snapshot.hooks:
            raise msgspec.ValidationError(
                f"There is no hook {kind.hook[:80]!r} - at `$.kinds[{name[:80]!r}].hook`"
            )
