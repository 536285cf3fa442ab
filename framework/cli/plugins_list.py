"""`framework plugins list`."""

from __future__ import annotations

from argparse import Namespace

from framework.cli.command import Command, Session
from framework.cli.output import add_json_flag, print_json
from framework.cli.plugin_table import print_plugins
from framework.plugins.manager import PluginManager

__all__ = ["COMMAND"]


def _run(arguments: Namespace, session: Session) -> int:
    reports = PluginManager.build(session.config).report()
    if arguments.json:
        print_json(reports)
    else:
        print_plugins(reports)
    return 0


COMMAND = Command(
    path=("plugins", "list"),
    help="list installed plugins: state, source, what they provide",
    run=_run,
    add_arguments=add_json_flag,
)
