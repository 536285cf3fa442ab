"""`framework config show`."""

from __future__ import annotations

from argparse import Namespace

from framework.cli.command import Command, Session
from framework.cli.output import add_json_flag, print_json
from framework.config import config_lines, config_tree
from framework.plugins.manager import PluginManager

__all__ = ["COMMAND"]


def _run(arguments: Namespace, session: Session) -> int:
    if arguments.json:
        print_json(config_tree(session.resolved))
    else:
        print("\n".join(config_lines(session.resolved)))
    # What plugins say of their options comes after the settings, which it must not hide.
    PluginManager.build(session.config)
    return 0


COMMAND = Command(
    path=("config", "show"),
    help="print every setting and where it comes from; then check plugin options",
    run=_run,
    add_arguments=add_json_flag,
)
