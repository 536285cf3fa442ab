"""The command line around a plugin's command, in this process."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Sequence

from framework.config import is_file_flag
from hookspecs.contracts.frontend import CliCommand

__all__ = ["is_setting", "parser_of", "run_command"]


def is_setting(option: str) -> bool:
    """Whether an option is taken out before a command parses the rest."""
    return is_file_flag(option) or (option.startswith("--") and "." in option)


def parser_of(command: CliCommand, name: str, description: str = "") -> ArgumentParser:
    """A parser to which the command has declared its arguments."""
    parser = ArgumentParser(prog=f"framework {name}", description=description, allow_abbrev=False)
    command.add_arguments(parser)
    return parser


def run_command(command: CliCommand, parser: ArgumentParser, argv: Sequence[str]) -> int:
    """Parse and run; what follows a bare `--` is its `rest`."""
    own, rest = list(argv), []
    if "--" in own:
        at = own.index("--")
        own, rest = own[:at], own[at + 1 :]
    return command.run(parser.parse_args(own), rest)
