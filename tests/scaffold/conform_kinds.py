"""Run with a directory of packages and `kind=name` of some: the conformance kit over each.

One process for many kinds, since torch is loaded once. Of the suite for whole plugins only the
check of the package is run: the rest of it starts engines, which the suites of the kinds do too.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from framework.conformance.catalogue import HOOK_SUITES, suite_of
from framework.conformance.exceptions import ConformFile, read_conform_file
from framework.conformance.run import conform

HOOK_KINDS = {kind.value: suite for kind, suite in HOOK_SUITES.items()}


def main(packages: Path, kinds: dict[str, str]) -> None:
    """Prints `kind: passed` or `kind:` and what failed."""
    for kind, name in kinds.items():
        source = str(packages / kind / "src")
        sys.path.insert(0, source)
        os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)
        try:
            print(f"{kind}: {_conform(kind, name, packages / kind / 'conform.toml')}", flush=True)
        finally:
            sys.path.remove(source)


def _conform(kind: str, name: str, file: Path) -> str:
    suite = suite_of(HOOK_KINDS.get(kind, kind))
    if suite is None:
        return "there is no suite"
    said = read_conform_file(file) if file.is_file() else ConformFile()
    extra: dict[str, Any] = {"settings": said.settings, "examples": said.examples}
    only = [*suite.cases(), "test_check_finds_nothing"]
    report = conform(name, only=only, quiet=True, **extra)
    ran = {test.suite for test in report.tests if test.outcome == "passed"}
    if report.failures or len(ran) < 2:
        return f"{sorted(ran)} ran; failed: {report.failures}"
    return "passed"


if __name__ == "__main__":
    main(Path(sys.argv[1]), dict(each.split("=") for each in sys.argv[2:]))
