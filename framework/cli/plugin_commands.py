"""Commands that plugins provide (`register_cli_commands`)."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence

from framework.cli.parser import command_parser
from framework.plugins.manager import PluginManager
from hookspecs.contracts.frontend import CliCommand

__all__ = ["KIND", "descriptions", "run_plugin_command"]

logger = logging.getLogger("framework.cli")
KIND = "cli_command"


def descriptions(manager: PluginManager, built_in: Collection[str]) -> dict[str, str]:
    """Command name to description. One with the name of a built-in one is left out, with a
    warning: a later version may add a command, which must break no installation."""
    found: dict[str, str] = {}
    for offered in manager.providers(KIND):
        name = offered.provider.name
        if name in built_in:
            logger.warning(
                "%s provides the command %r, which is built in; the built-in one is run. Rename "
                "it in the plugin",
                offered.ref,
                name,
            )
            continue
        found[name] = offered.provider.description
    return found


def run_plugin_command(manager: PluginManager, name: str, argv: Sequence[str]) -> int:
    """Parse and run one; what follows a bare `--` is its `rest`. Returns its exit code."""
    command: CliCommand = manager.create(KIND, name)
    description = manager.resolve(KIND, name).provider.description
    parser = command_parser(f"framework {name}", description)
    command.add_arguments(parser)
    own, rest = list(argv), []
    if "--" in own:
        at = own.index("--")
        own, rest = own[:at], own[at + 1 :]
    return command.run(parser.parse_args(own), rest)
