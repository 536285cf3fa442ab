"""The page of the command line says what the parsers say."""

from __future__ import annotations

from argparse import ArgumentParser, HelpFormatter

import pytest

from framework.cli import exits
from framework.cli.command import Command
from framework.cli.main import COMMANDS
from framework.docs.cli import cli_page

PAGE = cli_page()


def section(command: Command) -> str:
    """The part of the page about one command."""
    heading = f"\n## `framework {' '.join(command.path)}`\n"
    assert PAGE.count(heading) == 1
    return PAGE.split(heading)[1].partition("\n## ")[0]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(command.path))
def test_every_argument_of_a_command_is_there(command: Command) -> None:
    parser = ArgumentParser(
        prog="framework",
        add_help=False,
        formatter_class=lambda prog: HelpFormatter(prog, width=1000),
    )
    command.add_arguments(parser)
    text = section(command)
    words = " ".join(text.split())
    assert f"framework {' '.join(command.path)}" in words
    for line in parser.format_help().splitlines():
        flag = line.strip().partition(" ")[0].rstrip(",")
        if flag.startswith("--"):
            assert f"| `{flag}" in text, flag
            assert flag in words


def test_no_placeholder_of_argparse_is_left() -> None:
    assert "%(" not in PAGE
    assert "SUPPRESS" not in PAGE


def test_every_exit_code_is_there() -> None:
    codes = {value for name, value in vars(exits).items() if name.isupper() and type(value) is int}
    assert codes <= set(exits.EXIT_CODES)
    for code, meaning in exits.EXIT_CODES.items():
        assert f"| `{int(code)}` | {meaning} |" in PAGE
