"""What modules of the contract export beside classes: functions, constants, aliases, and names of
other modules."""

from __future__ import annotations

import inspect
from types import GenericAlias, ModuleType, UnionType
from typing import Any, Final

from framework.plugins.snapshot_classes import signature_text, value_text

__all__ = ["exported_names", "name_entry"]

SCALARS: Final = (str, int, float, bool, bytes)


def name_entry(value: object) -> tuple[str, Any]:
    """The section of an exported object that is no class, and its entry."""
    if isinstance(value, UnionType | GenericAlias):
        return "aliases", str(value)
    if inspect.isfunction(value):
        return "functions", signature_text(value)
    if callable(value):  # A decorator that another package makes, whose annotations are its own.
        parameters = inspect.signature(value).parameters.values()
        bare = [one.replace(annotation=inspect.Parameter.empty) for one in parameters]
        return "functions", str(inspect.Signature(bare))
    entry = {"type": type(value).__name__}
    if isinstance(value, SCALARS):
        entry["value"] = value_text(value)
    return "constants", entry


def exported_names(module: ModuleType) -> dict[str, Any]:
    """The names of a module that others define; nothing is imported for it. Where from is not part
    of the contract."""
    return {f"{module.__name__}.{name}": {} for name in module.__all__}
