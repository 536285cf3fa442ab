"""The committed reports of all built-in and sample plugins, and how they are made again:
`python -m tests.conformance.reports --write [NAME …]`."""

from __future__ import annotations

import argparse
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
    samples = {path.name.replace("_", "-"): path for path in (ROOT / "sample_plugins").iterdir()}
    found = []
    for ref in discover():
        if ref.distribution == BUILTIN_DISTRIBUTION:
            directory = ROOT / "conformance" / ref.name
            found.append(Place(ref.name, directory, directory / CONFORM_FILE))
        elif ref.distribution is not None:
            home = samples.get(ref.distribution.removeprefix("framework-"))
            if home is not None:
                found.append(Place(ref.name, home / "conformance", home / CONFORM_FILE))
    return found


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
