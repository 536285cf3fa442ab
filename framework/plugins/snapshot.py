"""The whole contract as data: what `hookspecs/api.json` holds and `diff` compares.

`python -m framework.plugins.snapshot` prints it, `--write` updates the committed file, and
`--against FILE` fails when the change since FILE needs a higher API_VERSION.
"""

from __future__ import annotations

import argparse
import enum
import importlib
import inspect
import json
import pkgutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import msgspec

import hookspecs
from framework.plugins.diff import missing_bump
from framework.plugins.specs import HOOKS
from hookspecs.hooks import EngineHooks
from hookspecs.kinds import PLUGIN_KINDS
from hookspecs.version import API_VERSION

__all__ = ["SNAPSHOT_FILE", "build_snapshot", "load_snapshot", "main", "snapshot_text"]

SNAPSHOT_FILE: Final = Path(hookspecs.__file__).parent / "api.json"


def build_snapshot() -> dict[str, Any]:
    """Hooks, plugin kinds, contracts, structs (events, contexts, data types), enumerations
    (capabilities among them) and errors. Annotations are given as they are written."""
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
    }
    for cls in _public_classes():
        section, entry = _class(cls)
        if section is not None:
            snapshot[section][f"{cls.__module__}.{cls.__name__}"] = entry
    return snapshot


def snapshot_text(snapshot: dict[str, Any]) -> str:
    """As JSON; equal snapshots give equal text."""
    return json.dumps(snapshot, indent=1, sort_keys=True) + "\n"


def load_snapshot(path: Path) -> dict[str, Any]:
    """A snapshot from a file."""
    loaded: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return loaded


def _modules() -> Iterator[ModuleType]:
    for found in pkgutil.walk_packages(hookspecs.__path__, "hookspecs."):
        yield importlib.import_module(found.name)


def _public_classes() -> Iterator[type]:
    """Classes that a module of hookspecs defines and exports. The configuration is left out:
    it has a schema of its own."""
    for module in _modules():
        if module.__name__ == "hookspecs.config":
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


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"update {SNAPSHOT_FILE.name}")
    parser.add_argument("--against", type=Path, help="an older snapshot")
    given = parser.parse_args(arguments)
    snapshot = build_snapshot()
    if given.against is not None:
        problem = missing_bump(load_snapshot(given.against), snapshot)
        if problem is not None:
            print(problem, file=sys.stderr)
            return 1
    elif given.write:
        SNAPSHOT_FILE.write_text(snapshot_text(snapshot), encoding="utf-8")
    else:
        print(snapshot_text(snapshot), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
