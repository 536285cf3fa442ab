"""What a change of the contract means for one plugin."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Final

import msgspec

from framework.plugins.diff import Change, ChangeKind, diff_snapshots
from framework.plugins.plugin_source import PluginSource, read_plugin
from framework.plugins.released import snapshot_version
from framework.plugins.subjects import CLASS_SECTIONS, NAME_SECTIONS, exists, find, owner_of
from framework.plugins.usage import Usage, contract_classes, contract_names, usage_of
from hookspecs import deprecated
from hookspecs.deprecated import Deprecation

__all__ = ["NOT_LOOKED_AT", "Impact", "deprecated_uses", "impact_of"]

NOT_LOOKED_AT: Final = (
    "Read from its source, by name and without types: a field counts as used "
    "where any attribute or keyword has its name. Not looked at: other packages that it imports, "
    "names made at run time (getattr, computed targets), arguments given by position, and what a "
    "method does."
)

Snapshot = Mapping[str, Any]


class Impact(msgspec.Struct, frozen=True, kw_only=True):
    """The changes between two contracts, seen from one plugin."""

    old: str
    new: str
    """Versions."""
    changes: tuple[Change, ...]
    """Those that concern it."""
    others: int
    """How many do not."""
    hooks: tuple[str, ...]
    """Hooks that it implements."""
    contracts: tuple[str, ...]
    """Contracts that it implements."""
    packages: tuple[str, ...]
    """Where its source is: packages, or single modules."""
    modules: tuple[str, ...]
    """What was read."""
    unread: tuple[str, ...]
    """What could not be read."""

    @property
    def breaks(self) -> bool:
        """Whether the plugin may have to be adapted."""
        return any(change.kind is not ChangeKind.ADDITIVE for change in self.changes)


def impact_of(value: str, one: Snapshot, other: Snapshot) -> Impact:
    """What changed for the plugin of an entry point `module:object`, from the older of two
    contracts to the newer."""
    old, new = sorted((one, other), key=lambda snapshot: tuple(snapshot["api_version"]))
    source = read_plugin(value)
    eye = _Eye(source, old, new)
    changes = diff_snapshots(old, new)
    mine = tuple(change for change in changes if eye.concerned(change.subject))
    return Impact(
        old=snapshot_version(old),
        new=snapshot_version(new),
        changes=mine,
        others=len(changes) - len(mine),
        hooks=tuple(sorted(eye.usage.hooks)),
        contracts=tuple(
            sorted(
                path
                for path in eye.usage.implements
                if path in old["contracts"] or path in new["contracts"]
            )
        ),
        packages=source.packages,
        modules=tuple(sorted(source.modules)),
        unread=source.unread,
    )


def deprecated_uses(value: str, running: Snapshot) -> list[Deprecation]:
    """Rows of the table that concern the plugin of an entry point."""
    if not deprecated.DEPRECATIONS:
        return []
    eye = _Eye(read_plugin(value), running, running)
    return [row for row in deprecated.DEPRECATIONS if eye.concerned(row.subject)]


class _Eye:
    """Decides which subjects concern a plugin."""

    def __init__(self, source: PluginSource, old: Snapshot, new: Snapshot) -> None:
        self._old, self._new = old, new
        self._known = contract_classes(old, new)
        self.usage: Usage = usage_of(source, contract_names(old, new))

    def concerned(self, subject: str) -> bool:
        """Whether a change of the subject may matter to the plugin."""
        section, owner, member = owner_of(subject, self._old, self._new)
        if section == "hooks":
            return owner in self.usage.hooks
        if section == "kinds":
            return self._provides(owner)
        if section == "exports":
            return owner in self.usage.dotted
        if member is None:
            return owner in self._near
        if owner in self.usage.contract and self._other_default(subject):
            return True  # It matters where the name is left out.
        added = not exists(self._old, subject)
        if owner in self.usage.implements:
            entry = find(self._new, subject)
            demanded = isinstance(entry, Mapping) and bool(entry.get("abstract"))
            named = member in self.usage.implements[owner] or member in self.usage.names
            return added or demanded or named
        if owner in self._near and added:
            return True
        return owner in self._far and self._mentions(subject, section, member)

    def _provides(self, kind: str) -> bool:
        rows = (snapshot["kinds"].get(kind) for snapshot in (self._old, self._new))
        return any(row is not None and row["hook"] in self.usage.hooks for row in rows)

    def _other_default(self, subject: str) -> bool:
        old, new = find(self._old, subject), find(self._new, subject)
        both = isinstance(old, Mapping) and isinstance(new, Mapping)
        return both and old.get("default") != new.get("default")

    def _mentions(self, subject: str, section: str, member: str) -> bool:
        if member in self.usage.names:
            return True
        values = (find(snapshot, subject) for snapshot in (self._old, self._new))
        return section == "enums" and any(value in self.usage.strings for value in values)

    @cached_property
    def _near(self) -> frozenset[str]:
        """What the plugin names, or classes that concern it without being named: those in the
        signatures of its hooks and of the contract methods that it defines, and context and
        capabilities of its kinds."""
        texts: list[str] = []
        for snapshot in (self._old, self._new):
            texts += [
                snapshot["hooks"][hook]["signature"]
                for hook in self.usage.hooks
                if hook in snapshot["hooks"]
            ]
            texts += [
                method["signature"]
                for contract, defined in self.usage.implements.items()
                for name, method in _methods(snapshot, contract).items()
                if name in defined
            ]
            texts += [
                f"{kind['context']} {kind['capabilities']}"
                for name, kind in snapshot["kinds"].items()
                if self._provides(name)
            ]
        return self.usage.contract | self.usage.implements.keys() | self._in(texts)

    @cached_property
    def _far(self) -> frozenset[str]:
        """Those, and all that can be reached from them through fields and methods."""
        reached, todo = set(self._near), list(self._near)
        while todo:
            path = todo.pop()
            texts = [text for snapshot in (self._old, self._new) for text in _texts(snapshot, path)]
            more = self._in(texts) - reached
            reached |= more
            todo += more
        return frozenset(reached)

    def _in(self, texts: list[str]) -> frozenset[str]:
        """Classes of the contract that some annotations name."""
        words = {word for text in texts for word in re.findall(r"\w+", text)}
        return frozenset(path for path in self._known if path.rpartition(".")[2] in words)


def _methods(snapshot: Snapshot, contract: str) -> Mapping[str, Any]:
    entry = snapshot["contracts"].get(contract)
    return entry["methods"] if entry else {}


def _texts(snapshot: Snapshot, path: str) -> list[str]:
    """All annotations of a class or function; what an alias stands for."""
    sections = [section for section in (*CLASS_SECTIONS, *NAME_SECTIONS) if section != "enums"]
    found = [snapshot[section].get(path) for section in sections]
    entry: Any = next((entry for entry in found if entry is not None), {})
    if isinstance(entry, str):
        return [entry]
    return [
        *(field["type"] for field in entry.get("fields", {}).values()),
        *(attribute["type"] for attribute in entry.get("attributes", {}).values()),
        *(method["signature"] for method in entry.get("methods", {}).values()),
    ]
