"""`framework plugins new KIND NAME`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

from framework.cli.command import Command, Session
from framework.plugins.command_names import wrong_command_name
from framework.scaffold.package import new_package
from framework.scaffold.templates import kinds
from hookspecs.errors import ConfigError

__all__ = ["COMMAND"]


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("kind", metavar="KIND", help=f"one of: {', '.join(kinds())}")
    parser.add_argument(
        "name", metavar="NAME", help="of the plugin: lower case letters, digits and single '-'"
    )
    parser.add_argument(
        "--directory",
        type=Path,
        metavar="DIR",
        help="where the package is written, a new or empty directory (default: NAME)",
    )
    parser.add_argument(
        "--distribution",
        metavar="DIST",
        help="what `pip install` will call it (default: framework-NAME)",
    )


def _run(arguments: Namespace, session: Session) -> int:
    # Imported here: that module imports this one.
    from framework.cli.main import BUILT_IN

    name: str = arguments.name
    if arguments.kind == "cli_command" and name in BUILT_IN:
        raise ConfigError(f"the command {name!r} is built in; choose another name")
    wrong = wrong_command_name(name) if arguments.kind == "engine_command" else None
    if wrong is not None:
        raise ConfigError(wrong)
    directory: Path = arguments.directory or Path(name)
    files = new_package(arguments.kind, name, directory, distribution=arguments.distribution)
    for path in files:
        print(f"wrote {path}")
    print(
        f"\nThe {arguments.kind} plugin {name!r} is complete. Next:\n"
        f"  cd {directory}\n"
        '  pip install -e ".[dev]"\n'
        "  pytest\n"
        f"  framework conform {name}\n"
        "It has no licence: add a LICENSE, and name it in pyproject.toml."
    )
    return 0


COMMAND = Command(
    path=("plugins", "new"),
    help="write a complete plugin package, which passes the conformance kit, to begin with",
    run=_run,
    add_arguments=_add_arguments,
)
