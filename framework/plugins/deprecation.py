"""Telling authors and operators that a plugin uses what will be removed.

Authors see a warning of the class that names the removing release, at the line of their own code
(pluggy's `warn_on_impl` does the same, but can not name the plugin); operators, who do not see
Python's deprecation warnings, a line in the log.
"""

from __future__ import annotations

import inspect
import logging
import warnings
from collections.abc import Iterator
from typing import Any

from framework.plugins.discovery import PluginRef
from framework.plugins.validate import HookMethod
from hookspecs import deprecated
from hookspecs.deprecated import Deprecation, deprecation_of

__all__ = ["warn_of_hook", "warn_of_methods"]

logger = logging.getLogger("framework.plugins")


def warn_of_hook(method: HookMethod) -> None:
    """Say so if the hook that a plugin implements is deprecated."""
    row = deprecation_of(f"hooks {method.spec.name}")
    if row is not None:
        _warn(f"{method.ref} implements the hook {method.spec.name}", row, method.function)


def warn_of_methods(ref: PluginRef, cls: type[Any]) -> None:
    """Say so for each deprecated contract that a provider's class derives from, and each
    deprecated method that it overrides."""
    for what, row, where in _of_class(cls):
        _warn(f"{ref}: {cls.__name__} {what}", row, where)


def _of_class(cls: type[Any]) -> Iterator[tuple[str, Deprecation, object]]:
    paths = [f"contracts {base.__module__}.{base.__qualname__}" for base in cls.__mro__]
    for row in deprecated.DEPRECATIONS:
        owner, _, name = row.subject.rpartition(".")
        if row.subject in paths:
            yield f"derives from {name}", row, cls
        elif owner in paths:
            for base in cls.__mro__[: paths.index(owner)]:
                if name in vars(base):
                    yield f"overrides {name}", row, vars(base)[name]
                    break


def _warn(what: str, row: Deprecation, where: object) -> None:
    text = f"{what}, which is {row}"
    logger.warning("%s", text)
    file, line = _place(where)
    warnings.warn_explicit(text, row.removal, file, line)


def _place(where: object) -> tuple[str, int]:
    """File and line of a function, property or class; of a class only the file is at hand."""
    function: Any = where.fget if isinstance(where, property) else getattr(where, "__func__", where)
    if inspect.isfunction(function):
        return function.__code__.co_filename, function.__code__.co_firstlineno
    return getattr(inspect.getmodule(function), "__file__", None) or "<unknown>", 1
