"""Names of the parts of a snapshot, as changes and deprecations have them.

`section name` or `section module.Class.member`, e.g. `hooks on_cache_reset`,
`structs hookspecs.events.StepFinished.step`, `functions hookspecs.contracts.worker.command`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

__all__ = ["CLASS_SECTIONS", "NAME_SECTIONS", "exists", "find", "owner_of", "version_of"]

CLASS_SECTIONS: Final = ("contracts", "structs", "enums", "errors", "classes")
"""Sections whose entries are classes, by `module.Class`; `classes` are those of `framework.sdk`."""
NAME_SECTIONS: Final = ("functions", "constants", "aliases", "exports")
"""Sections of what else modules define, by `module.name`; `exports` are the names that a package
lends from its modules."""

Snapshot = Mapping[str, Any]


def owner_of(subject: str, *snapshots: Snapshot) -> tuple[str, str, str | None]:
    """Section, entry and member: None when the subject is an entry of one of the snapshots, or
    its section has no members."""
    section, _, path = subject.partition(" ")
    if section not in CLASS_SECTIONS or any(path in one.get(section, ()) for one in snapshots):
        return section, path, None
    owner, _, member = path.rpartition(".")
    return section, owner, member


def find(snapshot: Snapshot, subject: str) -> Any:
    """The entry or member; None when the snapshot has none of that name."""
    section, owner, member = owner_of(subject, snapshot)
    entry = snapshot.get(section, {}).get(owner)
    if member is None or not isinstance(entry, Mapping):
        return entry if member is None else None
    if section == "enums":
        return entry.get(member)
    parts = (entry.get(part, {}) for part in ("fields", "attributes", "methods"))
    return next((part[member] for part in parts if member in part), None)


def exists(snapshot: Snapshot, subject: str) -> bool:
    """Whether the snapshot has it."""
    return find(snapshot, subject) is not None


def version_of(text: str) -> tuple[int, int]:
    """`major.minor` as numbers, for comparison. ValueError for anything else."""
    major, dot, minor = text.partition(".")
    if not (dot and major.isascii() and major.isdigit() and minor.isascii() and minor.isdigit()):
        raise ValueError(f"{text!r} is no contract version; write it as '1.0'")
    return int(major), int(minor)
