"""Entry point of the command line."""

from __future__ import annotations

import sys
from argparse import Action, ArgumentParser
from collections.abc import Sequence
from typing import Any, Final

from framework.cli import (
    bench_serve,
    chat,
    config_schema,
    config_show,
    conform,
    demo,
    generate,
    plugins_check,
    plugins_diff,
    plugins_list,
    plugins_new,
    plugins_show,
    serve,
)
from framework.cli.arguments import split_settings
from framework.cli.command import Command, Launch, Serve, Session
from framework.cli.engine import launch_engine, serve_engine
from framework.cli.exits import exit_code_of
from framework.cli.log import log_to_stderr
from framework.cli.parser import build_parser
from framework.cli.plugin_commands import KIND, descriptions, run_plugin_command
from framework.config import load_config
from framework.config.suggest import suggestion
from framework.plugins.discovery import BUILTIN_DISTRIBUTION, installed_version
from framework.plugins.manager import PluginManager
from framework.process.openmp import let_compute_threads_sleep
from hookspecs.version import API_VERSION

__all__ = ["main"]

COMMANDS: Final[tuple[Command, ...]] = (
    generate.COMMAND,
    chat.COMMAND,
    demo.COMMAND,
    serve.COMMAND,
    bench_serve.COMMAND,
    plugins_list.COMMAND,
    plugins_show.COMMAND,
    plugins_new.COMMAND,
    plugins_check.COMMAND,
    plugins_diff.COMMAND,
    conform.COMMAND,
    config_show.COMMAND,
    config_schema.COMMAND,
)
BUILT_IN: Final = frozenset(command.path[0] for command in COMMANDS)


class _Version(Action):
    """Prints the versions of the distribution and of the contract."""

    def __call__(self, parser: ArgumentParser, *rest: Any, **more: Any) -> None:
        version = installed_version(BUILTIN_DISTRIBUTION) or "(not installed)"
        print(f"{BUILTIN_DISTRIBUTION} {version}, plugin API {'.'.join(map(str, API_VERSION))}")
        parser.exit()


def main(
    argv: Sequence[str] | None = None,
    *,
    launch: Launch = launch_engine,
    serve: Serve = serve_engine,
) -> int:
    """Run one command; returns the exit code. `launch` and `serve` are for those that need an
    engine."""
    let_compute_threads_sleep()
    arguments = sys.argv[1:] if argv is None else argv
    with log_to_stderr():
        return exit_code_of(lambda: _main(arguments, launch, serve))


def _main(argv: Sequence[str], launch: Launch, serve: Serve) -> int:
    settings, rest = split_settings(argv)
    word = next((argument for argument in rest if not argument.startswith("-")), None)
    if word in BUILT_IN or "--version" in rest:
        parsed = build_parser(COMMANDS, {}, _Version).parse_args(rest)
        command: Command = parsed.command
        return command.run(parsed, Session(load_config(argv=settings), launch, serve))
    # Plugins are loaded only where their commands matter: in the help, and when one is named.
    manager = PluginManager.build(load_config(argv=settings).config)
    provided = descriptions(manager, BUILT_IN)
    parser = build_parser(COMMANDS, provided, _Version)
    if word in provided:
        at = rest.index(word)
        if at:  # The plugin's parser gets only what follows its name.
            parser.error(f"unrecognized arguments: {' '.join(rest[:at])}")
        return run_plugin_command(manager, word, rest[at + 1 :])
    if word is not None:
        parser.hint = suggestion(word, {*BUILT_IN, *provided}) + manager.registry.why_absent(KIND)
    parser.parse_args(rest)
    raise AssertionError("the parser accepts neither an unknown command nor none")
