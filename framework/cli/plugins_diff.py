"""`framework plugins diff A B`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any, Final

from framework.cli.command import Command, Session
from framework.cli.output import add_json_flag, print_json, print_table
from framework.plugins.diff import diff_snapshots, required_bump
from framework.plugins.manifest import api_text
from framework.plugins.snapshot import build_snapshot, load_snapshot
from hookspecs.errors import ConfigError

__all__ = ["COMMAND"]

SECTIONS: Final = ("api_version", "hooks", "kinds", "contracts", "structs", "enums", "errors")


def _add_arguments(parser: ArgumentParser) -> None:
    for name, which in (("old", "the older"), ("new", "the newer")):
        parser.add_argument(
            name,
            metavar=name.upper(),
            help=f"{which} snapshot: path of an api.json, or {api_text()} for the installed one",
        )
    add_json_flag(parser)


def _run(arguments: Namespace, session: Session) -> int:
    old, new = _snapshot(arguments.old), _snapshot(arguments.new)
    changes = diff_snapshots(old, new)
    bump = required_bump(changes)
    if arguments.json:
        print_json({"old": arguments.old, "new": arguments.new, "bump": bump, "changes": changes})
        return 0
    if changes:
        rows = [(str(change.kind), change.subject, change.text) for change in changes]
        print_table(("change", "subject", "what"), rows)
    print(f"{len(changes)} change(s); the version they need: {bump}")
    return 0


def _snapshot(which: str) -> dict[str, Any]:
    if which == api_text():
        return build_snapshot()
    path = Path(which)
    if not path.is_file():
        raise ConfigError(
            f"{which!r} is neither a file nor a version whose snapshot is kept; that is "
            f"{api_text()} only. Give the path of an api.json for others."
        )
    try:
        snapshot = load_snapshot(path)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{which!r} is no snapshot of the plugin API: {error}") from error
    missing = [section for section in SECTIONS if section not in snapshot]
    if missing:
        raise ConfigError(f"{which!r} is no snapshot of the plugin API: no {', '.join(missing)}.")
    return snapshot


COMMAND = Command(
    path=("plugins", "diff"),
    help="what changed between two versions of the plugin API",
    run=_run,
    add_arguments=_add_arguments,
)
