"""`framework plugins check NAME`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from framework.cli.command import Command, Session
from framework.cli.exits import FAILURE
from framework.cli.output import add_json_flag, print_json
from framework.plugins.check import check_plugin
from framework.plugins.manifest import api_text

__all__ = ["COMMAND"]


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="the name of an installed plugin")
    add_json_flag(parser)


def _run(arguments: Namespace, session: Session) -> int:
    name, findings = arguments.name, check_plugin(arguments.name)
    if arguments.json:
        print_json({"plugin": name, "api": api_text(), "findings": findings})
    elif findings:
        print(f"{name}: {len(findings)} finding(s) against plugin API {api_text()}:")
        print("\n".join(f"  - {finding}" for finding in findings))
    else:
        print(f"{name} fits plugin API {api_text()}")
    return FAILURE if findings else 0


COMMAND = Command(
    path=("plugins", "check"),
    help="check an installed plugin against the plugin API; exit code 1 if anything is wrong",
    run=_run,
    add_arguments=_add_arguments,
)
