"""Snapshots as files: the working one, and those of released contract versions.

`hookspecs/api.json` follows the code until its version is released. `hookspecs/released/X.Y.json`
is written once, when X.Y is released, and never changed: `SHA256SUMS` beside them lists their
digests in the format of `sha256sum`.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

import hookspecs
from framework.plugins.snapshot_form import check_form
from framework.plugins.subjects import CLASS_SECTIONS, NAME_SECTIONS, version_of
from hookspecs.errors import ConfigError

__all__ = [
    "RELEASED",
    "SNAPSHOT_FILE",
    "add_release",
    "damaged_releases",
    "find_snapshot",
    "load_snapshot",
    "newest_release",
    "released_versions",
    "snapshot_text",
    "snapshot_version",
]

SNAPSHOT_FILE: Final = Path(hookspecs.__file__).parent / "api.json"
RELEASED: Final = SNAPSHOT_FILE.parent / "released"
SUMS: Final = "SHA256SUMS"
SECTIONS: Final = ("api_version", "hooks", "kinds", *CLASS_SECTIONS, *NAME_SECTIONS, "deprecated")

MAX_BYTES: Final = 16 * 2**20
"""Of a snapshot; the present one has a hundredth of it."""

Snapshot = dict[str, Any]


def snapshot_text(snapshot: Mapping[str, Any]) -> str:
    """As JSON; equal snapshots give equal text."""
    return json.dumps(snapshot, indent=1, sort_keys=True) + "\n"


def snapshot_version(snapshot: Mapping[str, Any]) -> str:
    """`major.minor`."""
    return ".".join(map(str, snapshot["api_version"]))


def load_snapshot(path: Path) -> Snapshot:
    """A snapshot from a file. ConfigError when it is none."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise ValueError(f"it has more than {MAX_BYTES} bytes")
        given = msgspec.json.decode(content)
        there = given if isinstance(given, dict) else {}
        if missing := [section for section in SECTIONS if section not in there]:
            raise ValueError(f"no {', '.join(missing)}")
        check_form(given)
    except (OSError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise ConfigError(f"{str(path)!r} is no snapshot of the plugin API: {error}") from error
    snapshot: Snapshot = given
    return snapshot


def released_versions(folder: Path = RELEASED) -> list[str]:
    """Versions whose snapshot is kept, the oldest first."""
    return sorted((path.stem for path in folder.glob("*.json")), key=version_of)


def newest_release(folder: Path = RELEASED) -> Snapshot | None:
    """The snapshot of the newest released version; None before the first release."""
    versions = released_versions(folder)
    return load_snapshot(folder / f"{versions[-1]}.json") if versions else None


def find_snapshot(which: str, running: Snapshot, folder: Path = RELEASED) -> Snapshot:
    """The snapshot that a user names: a released version, that of `running` (which may be not yet
    released), or a file.

    ConfigError, with the versions that there are, for anything else.
    """
    released, here = released_versions(folder), snapshot_version(running)
    if which in released:
        return load_snapshot(folder / f"{which}.json")
    if which == here:
        return running
    if os.path.isfile(which):  # unlike Path.is_file, false for names that no file can have
        return load_snapshot(Path(which))
    known = ", ".join(sorted({*released, here}, key=version_of))
    raise ConfigError(
        f"{which!r} is neither a contract version whose snapshot is kept nor a file. Versions: "
        f"{known}. For another one give the path of its api.json."
    )


def add_release(snapshot: Snapshot, folder: Path = RELEASED) -> Path:
    """Keep the snapshot of a version for good. FileExistsError when that version is kept."""
    path = folder / f"{snapshot_version(snapshot)}.json"
    with path.open("x", encoding="utf-8", newline="\n") as file:
        file.write(snapshot_text(snapshot))
    sums = _sums(folder) | {path.name: _digest(path)}
    lines = [f"{digest}  {name}\n" for name, digest in sorted(sums.items())]
    (folder / SUMS).write_text("".join(lines), encoding="utf-8", newline="\n")
    return path


def damaged_releases(folder: Path = RELEASED) -> list[str]:
    """What is wrong with the kept files: changed, missing, not listed, or of another version
    than their name says."""
    sums, files = _sums(folder), {path.name: path for path in folder.glob("*.json")}
    wrong = [f"{name} is listed in {SUMS} and missing" for name in sorted(sums.keys() - files)]
    for name, path in sorted(files.items()):
        if name not in sums:
            wrong.append(f"{name} is not listed in {SUMS}")
        elif sums[name] != _digest(path):
            wrong.append(f"{name} was changed; a released contract stays as it is")
        elif snapshot_version(load_snapshot(path)) != path.stem:
            wrong.append(f"{name} holds version {snapshot_version(load_snapshot(path))}")
    return wrong


def _sums(folder: Path) -> dict[str, str]:
    """File name to digest."""
    lines = (folder / SUMS).read_text(encoding="utf-8").splitlines()
    return {name: digest for digest, _, name in (line.partition("  ") for line in lines)}


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
