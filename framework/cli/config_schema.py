"""`framework config schema`."""

from __future__ import annotations

from argparse import Namespace

from framework.cli.command import Command, Session
from framework.cli.output import add_json_flag, print_json
from framework.config import config_schema

__all__ = ["COMMAND"]


def _run(arguments: Namespace, session: Session) -> int:
    print_json(config_schema())  # a schema has one form, with --json and without
    return 0


COMMAND = Command(
    path=("config", "schema"),
    help="print the JSON schema of the configuration",
    run=_run,
    add_arguments=add_json_flag,
)
