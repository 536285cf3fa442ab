"""`framework conform NAME`."""

from __future__ import annotations

import os
import tempfile
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from framework.cli.command import Command, Session
from framework.cli.exits import FAILURE
from framework.config.keys import KEYS, SECRETS
from hookspecs.errors import ConfigError

if TYPE_CHECKING:
    from framework.conformance.report import Report

__all__ = ["COMMAND"]


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="the name of an installed plugin")
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N", help="of all random choices (default 0)"
    )
    parser.add_argument(
        "--device",
        default="cpu",
        metavar="NAME",
        help="of the tensors of what computes with torch, such as cuda (default cpu)",
    )
    parser.add_argument(
        "--only", action="append", default=[], metavar="TEST", help="a test to run; may be repeated"
    )
    parser.add_argument(
        "--report",
        type=Path,
        metavar="DIR",
        help="write conform.json, conform.md and badge.json into a directory",
    )
    parser.add_argument(
        "--file",
        type=Path,
        metavar="PATH",
        help="settings, examples and expected failures (default: conform.toml, if it is here)",
    )


def _run(arguments: Namespace, session: Session) -> int:
    # Imported here: only this command needs pytest.
    from framework.conformance.apart import conform_apart
    from framework.conformance.exceptions import CONFORM_FILE, ConformFile, read_conform_file
    from framework.conformance.report import Verdict, write_report
    from framework.conformance.subject import merged

    path: Path | None = arguments.file
    if path is None and os.path.lexists(CONFORM_FILE):
        path = Path(CONFORM_FILE)
    said = ConformFile() if path is None else read_conform_file(path)
    if arguments.report is not None:
        _make(arguments.report)
    report = conform_apart(
        arguments.name,
        settings=merged(said.settings, _given(session)),
        examples=said.examples,
        seed=arguments.seed,
        device=arguments.device,
        only=arguments.only,
        expected_failures=said.expected_failures,
    )
    print(_summary(report))
    if arguments.report is not None:
        for written in write_report(report, arguments.report):
            print(f"wrote {written}")
    return FAILURE if report.verdict is Verdict.NOT_CONFORMANT else 0


def _make(directory: Path) -> None:
    """ConfigError, before minutes of testing, when no report can be written there."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            pass
    except OSError as error:
        raise ConfigError(
            f"--report {str(directory)!r}: no report can be written there ({error}); name a "
            "directory that can be made and written"
        ) from error


def _given(session: Session) -> dict[str, Any]:
    """The settings of the command line and its file, by section. Those of the environment are
    left out, for the kit does not read it either; so are secrets, which a report would show."""
    origins = session.resolved.origins
    given = {
        key
        for key, origin in origins.items()
        if origin != "default" and not origin.startswith("environment ")
    }
    tree: dict[str, Any] = {}
    plain = msgspec.to_builtins(session.config)
    for name in KEYS:
        section, key = name.split(".")
        if name not in SECRETS and any(
            each == name or each.startswith(f"{name}.") for each in given
        ):
            tree.setdefault(section, {})[key] = plain[section][key]
    return tree


def _summary(report: Report) -> str:
    seconds = sum(test.seconds for test in report.tests)
    lines = [
        f"{report.plugin}: {report.claim} ({len(report.tests)} tests with seed {report.seed}, "
        f"{seconds:.1f} s)"
    ]
    lines += [f"  {test.suite}::{test.name}: {test.outcome}" for test in report.failures]
    if report.untested:
        lines.append(f"  not tested, the kit has no suite yet: {', '.join(report.untested)}")
    return "\n".join(lines)


COMMAND = Command(
    path=("conform",),
    help="run the conformance kit over an installed plugin; exit code 1 if it does not conform",
    run=_run,
    add_arguments=_add_arguments,
)
