"""`framework plugins diff A B`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from framework.cli.command import Command, Session
from framework.cli.output import add_json_flag, print_json, print_table
from framework.plugins.diff import diff_snapshots, required_bump
from framework.plugins.manifest import api_text
from framework.plugins.released import find_snapshot
from framework.plugins.snapshot import build_snapshot

__all__ = ["COMMAND"]


def _add_arguments(parser: ArgumentParser) -> None:
    for name, which in (("old", "the older"), ("new", "the newer")):
        parser.add_argument(
            name,
            metavar=name.upper(),
            help=f"{which} contract: a version whose snapshot is kept, such as the running "
            f"{api_text()}, or the path of an api.json",
        )
    add_json_flag(parser)


def _run(arguments: Namespace, session: Session) -> int:
    running = build_snapshot()
    old, new = find_snapshot(arguments.old, running), find_snapshot(arguments.new, running)
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


COMMAND = Command(
    path=("plugins", "diff"),
    help="what changed between two versions of the plugin API",
    run=_run,
    add_arguments=_add_arguments,
)
