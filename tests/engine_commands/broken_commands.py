"""Engine commands that can not be made."""

from __future__ import annotations

from typing import Any

import msgspec

from hookspecs.contracts.engine_command import EngineCommand, EngineCommandContext


class Look(EngineCommand):
    """Fine, but for its name elsewhere."""

    def run(self, arguments: Any) -> None:
        return


class NoStruct(Look):
    """Its arguments are a dict."""

    Arguments = dict  # type: ignore[assignment]


class AnyField(msgspec.Struct):
    """Takes what it does not know."""


class Lenient(Look):
    """Its arguments take anything."""

    Arguments = AnyField


class TwoStructs(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """msgspec can not tell what is meant."""

    either: AnyField | dict[str, int]


class Unreadable(Look):
    """Its arguments can not be decoded."""

    Arguments = TwoStructs


class OfTypeCheckers(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Names what only a type checker knows."""

    field: "Nowhere"  # type: ignore[name-defined]  # noqa: F821, UP037


class Unresolved(Look):
    """Its arguments have an annotation that can not be resolved."""

    Arguments = OfTypeCheckers


class OfNobody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Names what its module has not."""

    field: "msgspec.Meter"  # type: ignore[name-defined]  # noqa: UP037


class Misspelt(Look):
    """The same with another exception."""

    Arguments = OfNobody


class Eager(Look):
    """Reads what is lent for calls alone."""

    def __init__(self, context: EngineCommandContext) -> None:
        super().__init__(context)
        self.free = context.engine.cache.num_free_blocks


class Failing(Look):
    """Can not be constructed."""

    def __init__(self, context: EngineCommandContext) -> None:
        raise RuntimeError("no")
