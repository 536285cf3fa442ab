"""The rules that deprecations and removals keep, checked when a contract changes."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from framework.plugins.diff import ChangeKind, diff_snapshots
from framework.plugins.subjects import exists, version_of

__all__ = ["MINORS_BETWEEN", "removal_problems", "table_problems"]

MINORS_BETWEEN: Final = 2
"""Releases between the one that announces a removal and the one that removes, at least."""

Snapshot = Mapping[str, Any]


def table_problems(present: Snapshot, newest: Snapshot | None) -> Iterator[str]:
    """What is wrong with the deprecations of the present contract; `newest`: the newest released
    one, if there is one."""
    version = tuple(present["api_version"])
    old_rows = newest["deprecated"] if newest else {}
    for subject, row in present["deprecated"].items():
        since, removed_in = version_of(row["since"]), version_of(row["removed_in"])
        if not exists(present, subject):
            yield f"deprecated {subject!r}: the contract has no such thing"
        if removed_in[1] != 0 or removed_in <= since:
            yield (
                f"deprecated {subject!r}: it is to be removed in {row['removed_in']}; that must "
                f"be a later major version than {row['since']}"
            )
        elif version >= removed_in:
            yield f"deprecated {subject!r}: it was to be removed in {row['removed_in']}; remove it"
        if subject in old_rows:
            if since != version_of(old_rows[subject]["since"]):
                yield f"deprecated {subject!r}: since was {old_rows[subject]['since']}; leave it"
        elif since != version:
            yield (
                f"deprecated {subject!r}: it is announced in this version, "
                f"{version[0]}.{version[1]}, not in {row['since']}"
            )


def removal_problems(old: Snapshot, new: Snapshot, released: Collection[str]) -> Iterator[str]:
    """Removals since the newest release, `old`, that were not announced, or too late.
    `released`: all released versions.

    What is not stable may go without notice.
    """
    version = tuple(new["api_version"])
    for change in diff_snapshots(old, new):
        subject = change.subject
        if change.kind is not ChangeKind.BREAKING or not exists(old, subject):
            continue
        if exists(new, subject):
            continue
        row = old["deprecated"].get(subject)
        if row is None:
            yield f"{subject} was removed without having been deprecated"
            continue
        if version < version_of(row["removed_in"]):
            yield f"{subject} was removed; it was announced for {row['removed_in']}"
        since = version_of(row["since"])
        between = [one for one in released if since < version_of(one) < version]
        if len(between) < MINORS_BETWEEN:
            yield (
                f"{subject} was deprecated in {row['since']} and removed after "
                f"{len(between)} more release(s); {MINORS_BETWEEN} must lie between"
            )
