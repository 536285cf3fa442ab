"""The argument parser, made from commands."""

from __future__ import annotations

from argparse import Action, ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Iterable, Mapping
from typing import Any, Final, NoReturn

from framework.cli.command import Command
from framework.config import setting_names

__all__ = ["CommandParser", "build_parser", "command_parser"]

GROUPS: Final = {
    "bench": "measurements",
    "config": "settings and where they come from",
    "plugins": "what is installed, and whether it fits",
}
EPILOG: Final = """\
Every command takes settings: --config FILE (TOML) and --section.key=value, such as
--cache.block_size=32. `framework config show` lists them all."""


class CommandParser(ArgumentParser):
    """Knows the settings that an unknown flag may mean."""

    hint = ""
    """Sentences that are added to every error, each with a blank before it."""

    def error(self, message: str) -> NoReturn:
        words = message.removeprefix("unrecognized arguments: ").split()
        flags = [word.partition("=")[0] for word in words if word.startswith("--")]
        meant = [
            f"--{key}"
            for flag in flags
            for key in setting_names()
            if key.rpartition(".")[2] == flag[2:].replace("-", "_")
        ]
        if meant and words != message.split():
            message += f". Settings have their section: {', '.join(meant)}"
        super().error(f"{message}.{self.hint}" if self.hint else message)


def build_parser(
    commands: Iterable[Command], plugin_commands: Mapping[str, str], version: type[Action]
) -> CommandParser:
    """A parser whose result has the chosen command as `command`.

    `plugin_commands` maps names to descriptions; they are listed only, for one that is used is
    parsed by its plugin's own parser.
    """
    parser = command_parser("framework", "An LLM inference engine whose parts are all plugins.")
    parser.add_argument("--version", action=version, nargs=0, help="print versions and exit")
    top = parser.add_subparsers(metavar="COMMAND", required=True)
    groups: dict[str, Any] = {}
    for command in commands:
        *group, name = command.path
        parent = top
        for word in group:
            if word not in groups:
                added = top.add_parser(word, help=GROUPS[word], allow_abbrev=False)
                groups[word] = added.add_subparsers(metavar="COMMAND", required=True)
            parent = groups[word]
        own = parent.add_parser(
            name,
            help=command.help,
            description=command.help,
            epilog=EPILOG,
            formatter_class=RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        command.add_arguments(own)
        own.set_defaults(command=command)
    for name, description in plugin_commands.items():
        top.add_parser(name, help=description.replace("%", "%%"))
    return parser


def command_parser(prog: str, description: str) -> CommandParser:
    """A parser that knows of settings: its help names them, and its errors those that an unknown
    flag may mean."""
    return CommandParser(
        prog=prog,
        description=description,
        epilog=EPILOG,
        formatter_class=RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
