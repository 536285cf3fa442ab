"""The page of the command line, from the parsers of its commands."""

from __future__ import annotations

import textwrap
from argparse import Action, ArgumentParser
from collections.abc import Iterable
from typing import Any, Final

from framework.cli.command import Command
from framework.cli.exits import EXIT_CODES
from framework.cli.main import COMMANDS
from framework.docs.markdown import anchor, code, code_block, join, prose, table

__all__ = ["cli_page"]

WIDTH: Final = 88
"""Columns of a usage text."""
INTRO: Final = """\
`framework COMMAND` and `python -m framework COMMAND` are the same. Every command also takes
settings: `--config FILE` (TOML) and `--section.key=value`, such as `--cache.block_size=32`; all
keys are in [configuration](config.md). After a bare `--` nothing is a setting.

Plugins can add commands; `framework --help` lists those that are installed.
`framework --version` prints the versions of the distribution and of the plugin API."""


class _Recorder(ArgumentParser):
    """Keeps what is added, in order; what goes into a group, too."""

    def __init__(self, prog: str) -> None:
        self.added: list[Action] = []
        self._made = False
        super().__init__(prog=prog, add_help=False)
        self._made = True

    def add_argument(self, *names: Any, **options: Any) -> Action:
        action = super().add_argument(*names, **options)
        self.added.append(action)
        return action

    def add_argument_group(self, *names: Any, **options: Any) -> Any:
        # The parser's own constructor makes groups that it needs.
        return self if self._made else super().add_argument_group(*names, **options)


def cli_page() -> str:
    """Every built-in command with its arguments, and the exit codes of all."""
    recorded = [(command, _arguments(command)) for command in COMMANDS]
    rows = [
        (f"[{code(_name(command))}](#{anchor(_name(command))})", prose(command.help))
        for command, _ in recorded
    ]
    codes = [(code(str(number)), prose(meaning)) for number, meaning in EXIT_CODES.items()]
    blocks = ["# Command line", INTRO, table(("command", "what it does"), rows)]
    for command, arguments in recorded:
        blocks += _entry(command, arguments)
    blocks += [
        "## Exit codes",
        "An error is one message on standard error, `framework: error: …`; the traceback comes "
        "with `FRAMEWORK_DEBUG=1`.",
        table(("code", "meaning"), codes),
    ]
    return join(blocks)


def _name(command: Command) -> str:
    return " ".join(["framework", *command.path])


def _arguments(command: Command) -> list[Action]:
    recorder = _Recorder(_name(command))
    command.add_arguments(recorder)
    return recorder.added


def _entry(command: Command, arguments: Iterable[Action]) -> list[str]:
    words = " ".join([_name(command), *(_usage(action).replace(" ", "\0") for action in arguments)])
    usage = textwrap.fill(words, WIDTH, subsequent_indent="    ", break_on_hyphens=False)
    rows = [(code(_signature(action)), _meaning(action)) for action in arguments]
    return [
        f"## {code(_name(command))}",
        f"{prose(command.help[0].upper() + command.help[1:])}.",
        code_block(usage.replace("\0", " "), "text"),
        table(("argument", "meaning"), rows) if rows else "",
    ]


def _usage(action: Action) -> str:
    text = _signature(action).partition(", ")[0]
    optional = not action.required or action.nargs in ("?", "*")
    return f"[{text}]" if optional else text


def _signature(action: Action) -> str:
    """Its flags with what they take, or the name of a positional one."""
    value = _value(action)
    if not action.option_strings:
        return value
    return ", ".join(f"{flag} {value}".strip() for flag in action.option_strings)


def _value(action: Action) -> str:
    if action.nargs == 0:
        return ""
    if isinstance(action.metavar, str):
        name = action.metavar
    elif action.choices is not None:
        name = "{" + ",".join(map(str, action.choices)) + "}"
    else:
        name = action.dest.upper()
    return f"{name} ..." if action.nargs in ("*", "+") else name


def _meaning(action: Action) -> str:
    """The help text, with argparse's placeholders filled in."""
    text = (action.help or "") % {"default": action.default, "prog": ""}
    choices = action.choices if action.metavar is not None and action.choices else ()
    allowed = f" One of {', '.join(map(str, choices))}." if choices else ""
    return prose(text) + allowed
