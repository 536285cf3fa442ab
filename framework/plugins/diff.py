"""What changed between two snapshots of the contract, and what version that takes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any

from framework.plugins.snapshot_compare import COMPARISONS, Change, ChangeKind, compare_members
from framework.plugins.subjects import (
    CLASS_SECTIONS,
    NAME_SECTIONS,
    exists,
    owner_of,
    version_of,
)

__all__ = ["Bump", "Change", "ChangeKind", "diff_snapshots", "missing_bump", "required_bump"]

Entry = Mapping[str, Any]


class Bump(StrEnum):
    """Which part of API_VERSION has to grow."""

    NONE = "none"
    MINOR = "minor"
    MAJOR = "major"


def diff_snapshots(old: Entry, new: Entry) -> list[Change]:
    """All differences but that of the version, in a fixed order."""
    changes = [
        change
        for section, compare in COMPARISONS.items()
        for change in compare_members(section, old[section], new[section], compare)
    ]
    unstable, announced = _unstable(old), old["deprecated"]
    return [
        *(_qualified(change, old, new, unstable, announced) for change in changes),
        *_deprecations(new, announced, new["deprecated"]),
    ]


def required_bump(changes: list[Change]) -> Bump:
    """The least growth of the version that the changes need."""
    if any(change.kind is ChangeKind.BREAKING for change in changes):
        return Bump.MAJOR
    return Bump.MINOR if changes else Bump.NONE


def missing_bump(old: Entry, new: Entry) -> str | None:
    """What is wrong with the version of the newer snapshot; None when it fits the changes."""
    changes = diff_snapshots(old, new)
    bump = required_bump(changes)
    before, after = tuple(old["api_version"]), tuple(new["api_version"])
    enough = {
        Bump.NONE: after >= before,
        Bump.MINOR: after > before,
        Bump.MAJOR: after[0] > before[0],
    }
    if enough[bump]:
        return None
    lines = [f"  {change.kind}: {change.subject}: {change.text}" for change in changes]
    return "\n".join(
        [
            f"API_VERSION went from {before} to {after}; these changes need a {bump} version:",
            *lines,
        ]
    )


def _unstable(snapshot: Entry) -> set[str]:
    """Subjects that a minor version may change: hooks that are not stable, their kinds with
    contract, context and capabilities, and modules whose kinds are all such."""
    hooks, kinds = snapshot["hooks"], snapshot["kinds"]
    loose = {name for name, kind in kinds.items() if hooks[kind["hook"]]["tier"] != "stable"}
    found = {f"hooks {name}" for name, hook in hooks.items() if hook["tier"] != "stable"}
    found |= {f"kinds {name}" for name in loose}
    firm_modules = {
        _module_of(snapshot, kind["contract"]) for name, kind in kinds.items() if name not in loose
    }
    loose_modules = {_module_of(snapshot, kinds[name]["contract"]) for name in loose}
    parts = ("contract", "context", "capabilities")
    firm = {kind[part] for name, kind in kinds.items() if name not in loose for part in parts}
    own = {kinds[name][part] for name in loose for part in parts} - firm
    for section in (*CLASS_SECTIONS, *NAME_SECTIONS):
        for path in snapshot[section]:
            module, _, name = path.rpartition(".")
            if name in own or module in loose_modules - firm_modules:
                found.add(f"{section} {path}")
    return found


def _module_of(snapshot: Entry, contract: str) -> str:
    paths = (path.rpartition(".") for path in snapshot["contracts"])
    return next((module for module, _, name in paths if name == contract), "")


def _qualified(
    change: Change, old: Entry, new: Entry, unstable: set[str], announced: Entry
) -> Change:
    """The change with what the older contract said about its subject."""
    section, owner, _ = owner_of(change.subject, old, new)
    kind, text = change.kind, change.text
    if kind is ChangeKind.BREAKING and f"{section} {owner}" in unstable:
        kind = ChangeKind.PROVISIONAL
    if change.subject in announced and not exists(new, change.subject):
        row = announced[change.subject]
        text += f", as announced in {row['since']}; instead: {row['instead']}"
    return Change(kind=kind, subject=change.subject, text=text)


def _deprecations(new: Entry, old_rows: Entry, new_rows: Entry) -> Iterator[Change]:
    for subject in sorted({*old_rows, *new_rows}):
        before, after = old_rows.get(subject), new_rows.get(subject)
        if before == after or (after is None and not exists(new, subject)):
            continue
        kind = ChangeKind.ADDITIVE
        if after is None:
            text = "no longer deprecated"
        else:
            text = (
                f"deprecated since {after['since']}, removed in {after['removed_in']}; "
                f"instead: {after['instead']}"
            )
            if before and version_of(after["removed_in"]) < version_of(before["removed_in"]):
                kind, text = ChangeKind.BREAKING, f"{text} (was {before['removed_in']})"
        yield Change(kind=kind, subject=subject, text=text)
