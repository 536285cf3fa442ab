"""The whole contract as data: what `hookspecs/api.json` holds and `diff` compares.

`python -m framework.plugins.snapshot` prints it. `--write` updates the committed file, `--against`
fails when the change since an older contract needs a higher API_VERSION or removes what was not
announced, and `--release` keeps the present version for good.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import pkgutil
import sys
from collections.abc import Iterator, Sequence
from typing import Any, Final

import framework
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
from framework.plugins.snapshot_classes import class_entry, signature_text
from framework.plugins.snapshot_names import exported_names, name_entry
from framework.plugins.snapshot_sdk import sdk_sections
from framework.plugins.specs import HOOKS
from framework.plugins.subjects import CLASS_SECTIONS, NAME_SECTIONS
from hookspecs import deprecated
from hookspecs.errors import ConfigError
from hookspecs.hooks import EngineHooks
from hookspecs.kinds import PLUGIN_KINDS
from hookspecs.version import API_VERSION

__all__ = ["build_snapshot", "contract_problems", "main"]

LEFT_OUT: Final = ("hookspecs.config", "hookspecs.deprecated")
"""The configuration has a schema of its own; the rows of deprecations are data here."""


def build_snapshot() -> dict[str, Any]:
    """Hooks, plugin kinds, what `hookspecs` and `framework.sdk` export (contracts, structs,
    enumerations, errors, functions, constants, aliases), names that packages lend from their
    modules, and what of all this is deprecated."""
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
        **{section: {} for section in (*CLASS_SECTIONS, *NAME_SECTIONS)},
        "deprecated": {
            row.subject: {
                "since": row.since,
                "removed_in": row.removal.removed_in,
                "instead": row.instead,
            }
            for row in deprecated.DEPRECATIONS
        },
    }
    for path, value in _exports():
        section, entry = class_entry(value) if inspect.isclass(value) else name_entry(value)
        snapshot[section][path] = entry
    for section, entries in sdk_sections().items():
        snapshot[section] |= entries
    for package in (hookspecs, framework):
        snapshot["exports"] |= exported_names(package)
    return snapshot


def _exports() -> Iterator[tuple[str, Any]]:
    """What the modules of hookspecs define and export, by `module.name`."""
    for found in pkgutil.walk_packages(hookspecs.__path__, "hookspecs."):
        module = importlib.import_module(found.name)
        if module.__name__ in LEFT_OUT:
            continue
        for name in getattr(module, "__all__", ()):
            value = getattr(module, name)
            if not inspect.isclass(value) or value.__module__ == module.__name__:
                yield f"{module.__name__}.{name}", value


def _hook(name: str) -> dict[str, Any]:
    meta = HOOKS[name].meta
    return {
        "signature": signature_text(vars(EngineHooks)[name]),
        "kind": meta.kind.value,
        "roles": [role.value for role in meta.roles],
        "since": meta.since,
        "hot": meta.hot,
        "tier": meta.tier.value,
        "activation": meta.activation.value,
        "contract": meta.contract,
    }


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
