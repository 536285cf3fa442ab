"""Commands that plugins provide (`register_cli_commands`)."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from framework.cli.parser import command_parser
from framework.plugins.manager import PluginManager
from hookspecs.contracts.frontend import CliCommand
from hookspecs.errors import PluginConflictError

__all__ = ["KIND", "descriptions", "run_plugin_command"]

KIND = "cli_command"


def descriptions(manager: PluginManager, built_in: Collection[str]) -> dict[str, str]:
    """Command name to description. PluginConflictError if one is the name of a built-in one."""
    found: dict[str, str] = {}
    for offered in manager.providers(KIND):
        name = offered.provider.name
        if name in built_in:
            raise PluginConflictError(
                f"{offered.ref} provides the command {name!r}, which is built in and can not be "
                "replaced. Rename it in the plugin, or block the plugin with plugins.block",
                plugin=offered.ref.name,
                distribution=offered.ref.distribution,
                hook=offered.kind.hook,
            )
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
