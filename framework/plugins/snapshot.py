"""The whole contract as data: what `hookspecs/api.json` holds and `diff` compares.

`python -m framework.plugins.snapshot` prints it. `--write` updates the committed file, `--against`
fails when the change since an older contract needs a higher API_VERSION or removes what was not
announced, and `--release` keeps the present version for good.
"""

from __future__ import annotations

import argparse
import enum
import importlib
import inspect
import pkgutil
import sys
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any, Final

import msgspec

import hookspecs
from framework.plugins.deprecation_rules import removal_problems, table_problems
from framework.plugins.diff import missing_bump
from framework.plugins.released import (
    SNAPSHOT_FILE,
    add_release,
    damaged_releases,
    find_snapshot,
    newest_release,
    released_versions,
    snapshot_text,
    snapshot_version,
)
from framework.plugins.specs import HOOKS
from hookspecs import deprecated
from hookspecs.errors import ConfigError
from hookspecs.hooks import EngineHooks
from hookspecs.kinds import PLUGIN_KINDS
from hookspecs.version import API_VERSION

__all__ = ["build_snapshot", "contract_problems", "main"]

LEFT_OUT: Final = ("hookspecs.config", "hookspecs.deprecated")
"""The configuration has a schema of its own; the rows of deprecations are data here."""


def build_snapshot() -> dict[str, Any]:
    """Hooks, plugin kinds, contracts, structs (events, contexts, data types), enumerations
    (capabilities among them), errors, and what of them is deprecated. Annotations are given as
    they are written."""
    snapshot: dict[str, Any] = {
        "api_version": list(API_VERSION),
        "hooks": {name: _hook(name) for name in HOOKS},
        "kinds": {
            kind.name: {
                "hook": kind.hook,
                "contract": kind.contract.__name__,
                "context": kind.context.__name__,
                "capabilities": kind.capabilities.__name__ if kind.capabilities else None,
                "setting": kind.setting,
            }
            for kind in PLUGIN_KINDS.values()
        },
        "contracts": {},
        "structs": {},
        "enums": {},
        "errors": {},
        "deprecated": {
            row.subject: {
                "since": row.since,
                "removed_in": row.removal.removed_in,
                "instead": row.instead,
            }
            for row in deprecated.DEPRECATIONS
        },
    }
    for cls in _public_classes():
        section, entry = _class(cls)
        if section is not None:
            snapshot[section][f"{cls.__module__}.{cls.__name__}"] = entry
    return snapshot


def _modules() -> Iterator[ModuleType]:
    for found in pkgutil.walk_packages(hookspecs.__path__, "hookspecs."):
        yield importlib.import_module(found.name)


def _public_classes() -> Iterator[type]:
    """Classes that a module of hookspecs defines and exports."""
    for module in _modules():
        if module.__name__ in LEFT_OUT:
            continue
        for name in getattr(module, "__all__", ()):
            value = getattr(module, name)
            if inspect.isclass(value) and value.__module__ == module.__name__:
                yield value


def _hook(name: str) -> dict[str, Any]:
    meta = HOOKS[name].meta
    return {
        "signature": _signature(vars(EngineHooks)[name]),
        "kind": meta.kind.value,
        "roles": [role.value for role in meta.roles],
        "since": meta.since,
        "hot": meta.hot,
        "tier": meta.tier.value,
        "activation": meta.activation.value,
        "contract": meta.contract,
    }


def _class(cls: type) -> tuple[str | None, Any]:
    """The section of a class and its entry; no section for a class that is no interface."""
    if issubclass(cls, msgspec.Struct | tuple):
        return "structs", {"fields": _fields(cls), "methods": _methods(cls)}
    if issubclass(cls, enum.Enum):
        return "enums", {member.name: member.value for member in cls}
    if issubclass(cls, Exception):
        return "errors", [base.__name__ for base in cls.__mro__[1:-1]]
    if cls is EngineHooks:
        return None, None
    return "contracts", {
        "protocol": _is_protocol(cls),
        "methods": _methods(cls),
    }


def _fields(cls: type[Any]) -> dict[str, Any]:
    """Of a struct or named tuple."""
    annotations: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        annotations |= inspect.get_annotations(base)
    if issubclass(cls, msgspec.Struct):
        # Not msgspec.structs.fields: it evaluates annotations, and some name torch.
        names, defaults = cls.__struct_fields__, cls.__struct_defaults__
        given = (msgspec.NODEFAULT,) * (len(names) - len(defaults)) + defaults
        required = {
            name: default is msgspec.NODEFAULT for name, default in zip(names, given, strict=True)
        }
    else:
        required = {name: name not in cls._field_defaults for name in cls._fields}
    return {
        name: {"type": _text(annotations[name]), "required": needed}
        for name, needed in required.items()
    }


def _text(annotation: Any) -> str:
    """An annotation as written; typing.NamedTuple wraps it."""
    return str(getattr(annotation, "__forward_arg__", annotation))


def _methods(cls: type) -> dict[str, Any]:
    """Public methods and properties, those of bases in hookspecs included."""
    methods: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        if not base.__module__.startswith("hookspecs"):
            continue
        for name, member in vars(base).items():
            entry = _method(member)
            # typing gives a Protocol an `__init__` that is none of ours.
            constructs = name == "__init__" and not _is_protocol(cls)
            if entry is not None and (constructs or not name.startswith("_")):
                methods[name] = entry
    return methods


def _is_protocol(cls: type) -> bool:
    return bool(getattr(cls, "_is_protocol", False))


def _method(member: object) -> dict[str, Any] | None:
    shape = "method"
    if isinstance(member, property):
        shape, member = "property", member.fget
    elif isinstance(member, classmethod | staticmethod):
        shape, member = type(member).__name__, member.__func__
    if not inspect.isfunction(member):
        return None
    return {
        "shape": shape,
        "signature": _signature(member),
        "abstract": bool(getattr(member, "__isabstractmethod__", False)),
    }


def _signature(function: Any) -> str:
    return str(inspect.signature(function))


def contract_problems(old: dict[str, Any] | None, new: dict[str, Any]) -> list[str]:
    """What stands against `new` as a successor of `old` (None: it is the first): its version, and
    deprecations and removals since the newest release."""
    newest = newest_release()
    problems = [*table_problems(new, newest)]
    wrong_version = missing_bump(old, new) if old is not None else None
    problems += [] if wrong_version is None else [wrong_version]
    if newest is not None:
        problems += removal_problems(newest, new, released_versions())
    return problems


def _release(present: dict[str, Any]) -> list[str]:
    """Keep the snapshot of the present version; returns what forbids it."""
    version, newest = snapshot_version(present), newest_release()
    problems = [*damaged_releases(), *contract_problems(newest, present)]
    if SNAPSHOT_FILE.read_text(encoding="utf-8") != snapshot_text(present):
        problems.append(f"{SNAPSHOT_FILE.name} is not what the code says; update it with --write")
    if not problems and version in released_versions():
        problems.append(f"{version} is released; the next release needs a higher API_VERSION")
    if not problems:
        print(f"{add_release(present)} keeps contract {version}")
    return problems


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m framework.plugins.snapshot", description="The contract as data."
    )
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--write", action="store_true", help=f"update {SNAPSHOT_FILE.name}")
    action.add_argument(
        "--against", metavar="OLD", help="compare with an older contract: a version or a file"
    )
    action.add_argument("--release", action="store_true", help="keep the present version for good")
    given = parser.parse_args(arguments)
    snapshot, problems = build_snapshot(), list[str]()
    if given.against is not None:
        try:
            problems = contract_problems(find_snapshot(given.against, snapshot), snapshot)
        except ConfigError as error:
            parser.error(str(error))
    elif given.release:
        problems = _release(snapshot)
    elif given.write:
        SNAPSHOT_FILE.write_text(snapshot_text(snapshot), encoding="utf-8")
    else:
        print(snapshot_text(snapshot), end="")
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
