"""`framework plugins check NAME`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

import msgspec

from framework.cli.command import Command, Session
from framework.cli.exits import FAILURE
from framework.cli.output import add_json_flag, print_json, print_table
from framework.plugins.check import check_plugin, installed_plugins
from framework.plugins.impact import NOT_LOOKED_AT, Impact, deprecated_uses, impact_of
from framework.plugins.manifest import api_text
from framework.plugins.released import find_snapshot
from framework.plugins.snapshot import build_snapshot

__all__ = ["COMMAND"]


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="the name of an installed plugin")
    parser.add_argument(
        "--against",
        metavar="VERSION|FILE",
        help="also say what differs for this plugin between the running contract and another: a "
        "version whose snapshot is kept, or the path of an api.json",
    )
    add_json_flag(parser)


def _run(arguments: Namespace, session: Session) -> int:
    name, running = arguments.name, build_snapshot()
    other = None if arguments.against is None else find_snapshot(arguments.against, running)
    value = installed_plugins(name)[0].value
    findings = check_plugin(name)
    rows = deprecated_uses(value, running)
    impact = None if other is None else impact_of(value, other, running)
    if arguments.json:
        print_json(
            {
                "plugin": name,
                "api": api_text(),
                "findings": findings,
                "deprecated": [
                    {"subject": row.subject, "text": str(row), "removed_in": row.removal.removed_in}
                    for row in rows
                ],
                **({} if impact is None else {"against": msgspec.structs.asdict(impact)}),
            }
        )
        return _exit_code(findings, impact)
    if findings:
        print(f"{name}: {len(findings)} finding(s) against plugin API {api_text()}:")
        print("\n".join(f"  - {finding}" for finding in findings))
    else:
        print(f"{name} fits plugin API {api_text()}")
    if rows:
        print("It uses, or may use, what is deprecated:")
        print("\n".join(f"  - {row.subject}: {row}" for row in rows))
    if impact is not None:
        _print(name, impact)
    return _exit_code(findings, impact)


def _exit_code(findings: list[str], impact: Impact | None) -> int:
    return FAILURE if findings or (impact is not None and impact.breaks) else 0


def _print(name: str, impact: Impact) -> None:
    print(
        f"\nFrom {impact.old} to {impact.new}, {len(impact.changes)} change(s) concern {name}, "
        f"{impact.others} do not."
    )
    if impact.changes:
        rows = [(str(change.kind), change.subject, change.text) for change in impact.changes]
        print_table(("change", "subject", "what"), rows)
    print(f"hooks: {', '.join(impact.hooks) or 'none'}")
    print(f"contracts: {', '.join(impact.contracts) or 'none'}")
    print(f"source: {len(impact.modules)} module(s) of {', '.join(impact.packages)}")
    if impact.unread:
        print(f"without readable source: {', '.join(impact.unread)}")
    print(NOT_LOOKED_AT)


COMMAND = Command(
    path=("plugins", "check"),
    help="check an installed plugin against the plugin API; exit code 1 if anything is wrong",
    run=_run,
    add_arguments=_add_arguments,
)
