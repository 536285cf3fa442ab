"""The committed reports of all built-in and sample plugins, and how they are made again:
`python -m tests.conformance.reports --write [NAME …]`."""

from __future__ import annotations

import argparse
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from framework.conformance.exceptions import CONFORM_FILE, ConformFile, read_conform_file
from framework.conformance.report import Report, Verdict, write_report
from framework.conformance.run import conform
from framework.plugins.discovery import BUILTIN_DISTRIBUTION, discover

__all__ = ["ROOT", "Place", "make", "places"]

ROOT: Final = Path(__file__).parents[2]


class Place(NamedTuple):
    """A plugin of this repository, and where its report lies."""

    plugin: str
    directory: Path
    said: Path
    """Its `conform.toml`, which need not exist."""


def places() -> list[Place]:
    """Built-in plugins first."""
    homes: dict[str, Path] = {}
    for path in sorted((ROOT / "sample_plugins").glob("*/pyproject.toml")):
        project = tomllib.loads(path.read_text(encoding="utf-8"))["project"]
        homes |= dict.fromkeys(project["entry-points"]["framework.plugins"], path.parent)
    built_in = [ref.name for ref in discover() if ref.distribution == BUILTIN_DISTRIBUTION]
    directories = {name: ROOT / "conformance" / name for name in built_in}
    return [
        *(Place(name, path, path / CONFORM_FILE) for name, path in directories.items()),
        *(Place(name, home / "conformance", home / CONFORM_FILE) for name, home in homes.items()),
    ]


def make(place: Place) -> Report:
    """Run the kit over it."""
    said = read_conform_file(place.said) if place.said.is_file() else ConformFile()
    return conform(
        place.plugin,
        settings=said.settings,
        examples=said.examples,
        expected_failures=said.expected_failures,
        quiet=True,
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 1 if a plugin does not conform."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.reports")
    parser.add_argument("names", nargs="*", metavar="NAME", help="plugins; default: all")
    parser.add_argument("--write", action="store_true", help="update the committed reports")
    arguments = parser.parse_args(argv)
    failed = False
    for place in places():
        if arguments.names and place.plugin not in arguments.names:
            continue
        report = make(place)
        seconds = sum(test.seconds for test in report.tests)
        print(f"{place.plugin}: {report.claim}, {len(report.tests)} tests, {seconds:.1f} s")
        for test in report.failures:
            print(f"  {test.suite}::{test.name}: {test.outcome}: {test.reason.splitlines()[:1]}")
        if arguments.write:
            write_report(report, place.directory)
        failed |= report.verdict is Verdict.NOT_CONFORMANT
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main())
