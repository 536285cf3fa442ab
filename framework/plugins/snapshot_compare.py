"""What changed between two entries of a snapshot, section by section."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from typing import Any, Final

import msgspec

__all__ = ["COMPARISONS", "Change", "ChangeKind", "compare_members"]

Entry = Mapping[str, Any]


class ChangeKind(StrEnum):
    """Whether a plugin written for the older contract still works."""

    ADDITIVE = "additive"
    VALUE = "value"
    """It works; a constant that it may read has another value."""
    PROVISIONAL = "provisional"
    """It may not, and uses a part of the contract that is not stable."""
    BREAKING = "breaking"


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One difference."""

    kind: ChangeKind
    subject: str
    """What changed, e.g. `structs hookspecs.events.StepFinished.step`."""
    text: str


Comparison = Callable[[str, Any, Any], Iterator[Change]]
Addition = Callable[[Any], ChangeKind]


def _additive(entry: Any) -> ChangeKind:
    return ChangeKind.ADDITIVE


def compare_members(
    place: str, old: Entry, new: Entry, compare: Comparison, added: Addition = _additive
) -> Iterator[Change]:
    """What went, what came, and what changed in what stayed, by name."""
    dot = "." if " " in place else " "
    for name in sorted({*old, *new}):
        subject = f"{place}{dot}{name}"
        if name not in new:
            yield _breaking(subject, "removed")
        elif name not in old:
            yield Change(kind=added(new[name]), subject=subject, text="added")
        elif old[name] != new[name]:
            yield from compare(subject, old[name], new[name])


def _plain(subject: str, old: Any, new: Any) -> Iterator[Change]:
    yield _breaking(subject, f"was {old}, is {new}")


def _hook(subject: str, old: Entry, new: Entry) -> Iterator[Change]:
    for field in sorted({*old, *new}):
        before, after = old.get(field), new.get(field)
        if before == after:
            continue
        harmless = field in ("hot", "since") or (
            (field == "roles" and set(before or ()) <= set(after or ()))
            or (field == "tier" and after == "stable")
            or (field == "activation" and after == "auto")
        )
        kind = ChangeKind.ADDITIVE if harmless else ChangeKind.BREAKING
        yield Change(kind=kind, subject=subject, text=f"{field} was {before}, is {after}")


def _contract(subject: str, old: Entry, new: Entry) -> Iterator[Change]:
    if old["protocol"] != new["protocol"]:
        yield _breaking(subject, "turned from ABC to Protocol or back")
    # Plugins implement ABCs and call Protocols: what these newly demand breaks only the former.
    lent = new["protocol"]
    yield from compare_members(
        subject,
        old["attributes"],
        new["attributes"],
        _field,
        lambda entry: ChangeKind.ADDITIVE if lent else _needed(entry),
    )
    yield from compare_members(
        subject,
        old["methods"],
        new["methods"],
        _method,
        lambda entry: (
            ChangeKind.BREAKING if entry["abstract"] and not lent else ChangeKind.ADDITIVE
        ),
    )


def _method(subject: str, old: Entry, new: Entry) -> Iterator[Change]:
    for field in ("shape", "signature"):
        if old[field] != new[field]:
            yield _breaking(subject, f"{field} was {old[field]}, is {new[field]}")
    if new["abstract"] and not old["abstract"]:
        yield _breaking(subject, "lost its default body")
    elif old["abstract"] and not new["abstract"]:
        yield Change(kind=ChangeKind.ADDITIVE, subject=subject, text="got a default body")


def _struct(subject: str, old: Entry, new: Entry) -> Iterator[Change]:
    if old["tuple"] != new["tuple"]:
        yield _breaking(subject, "turned from tuple to struct or back")
    if old["frozen"] != new["frozen"]:
        # Either way: a frozen one can not be changed, and only a frozen one can be hashed.
        yield _breaking(subject, f"frozen was {old['frozen']}, is {new['frozen']}")
    before, after = old["positional"], new["positional"]
    # A tuple is unpacked too, which one more field breaks.
    if after != before if new["tuple"] else after[: len(before)] != before:
        yield _breaking(subject, f"by position: was {_list(before)}, is {_list(after)}")
    yield from compare_members(subject, old["fields"], new["fields"], _field, _needed)
    yield from compare_members(subject, old["methods"], new["methods"], _method)


def _needed(entry: Entry) -> ChangeKind:
    """Of a new field or attribute: one without a default has to be given."""
    return ChangeKind.ADDITIVE if "default" in entry else ChangeKind.BREAKING


def _field(subject: str, old: Entry, new: Entry) -> Iterator[Change]:
    if old["type"] != new["type"]:
        yield _breaking(subject, f"type was {old['type']}, is {new['type']}")
    if "default" not in new and "default" in old:
        yield _breaking(subject, "lost its default")
    elif "default" not in old and "default" in new:
        yield Change(kind=ChangeKind.ADDITIVE, subject=subject, text="got a default")
    elif old.get("default") != new.get("default"):
        yield _breaking(subject, f"default was {old['default']}, is {new['default']}")


def _enum(subject: str, old: Entry, new: Entry) -> Iterator[Change]:
    yield from compare_members(subject, old, new, _plain)


def _error(subject: str, old: Entry, new: Entry) -> Iterator[Change]:
    if lost := [base for base in old["bases"] if base not in new["bases"]]:
        yield _breaking(subject, f"is no longer a {_list(lost)}")
    if got := [base for base in new["bases"] if base not in old["bases"]]:
        text = f"is also a {_list(got)}"
        yield Change(kind=ChangeKind.ADDITIVE, subject=subject, text=text)
    yield from compare_members(subject, old["methods"], new["methods"], _method)


def _constant(subject: str, old: Entry, new: Entry) -> Iterator[Change]:
    if old["type"] != new["type"]:
        yield _breaking(subject, f"type was {old['type']}, is {new['type']}")
    if old.get("value") != new.get("value"):
        text = f"was {old.get('value')}, is {new.get('value')}"
        yield Change(kind=ChangeKind.VALUE, subject=subject, text=text)


def _list(names: list[str]) -> str:
    return ", ".join(names) or "none"


def _breaking(subject: str, text: str) -> Change:
    return Change(kind=ChangeKind.BREAKING, subject=subject, text=text)


COMPARISONS: Final[Mapping[str, Comparison]] = {
    "hooks": _hook,
    "kinds": _plain,
    "contracts": _contract,
    "structs": _struct,
    "enums": _enum,
    "errors": _error,
    "classes": _struct,
    "functions": _plain,
    "constants": _constant,
    "aliases": _plain,
    "exports": _plain,
}
"""By section: how two entries that differ are compared."""
