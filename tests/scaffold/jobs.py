"""Packages of all kinds, and the programs that check them, two at a time beside other tests."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from framework.scaffold.package import new_package
from framework.scaffold.templates import kinds
from tests.docs.guide import ROOT, write_metadata

__all__ = ["OWN_TESTS", "Jobs", "name_of", "write_all"]

OWN_TESTS = ("filter", "frontend", "scheduler")
"""Kinds whose packages run their own tests."""


def name_of(kind: str) -> str:
    """What the plugin of a kind is called."""
    return f"new-{kind.replace('_', '-')}"


def write_all(directory: Path) -> None:
    """A package of each kind, with the metadata of an installed one."""
    for kind in kinds():
        new_package(kind, name_of(kind), directory / kind)
        write_metadata(directory / kind)


class Jobs:
    """What they say is waited for by the tests that need it. The slowest come first."""

    def __init__(self, packages: Path, pool: ThreadPoolExecutor) -> None:
        every = kinds()
        self.conform: list[Future[str]] = [
            pool.submit(
                _run,
                [sys.executable, str(Path(__file__).with_name("conform_kinds.py")), str(packages)]
                + [f"{kind}={name_of(kind)}" for kind in every[half::2]],
                packages,
            )
            for half in range(2)
        ]
        """A line for each kind."""
        self.types = pool.submit(_mypy, packages)
        self.own_tests = pool.submit(_own_tests, packages)


def _mypy(packages: Path) -> str:
    """Once over all packages, as `mypy --strict` in each. What is known of libraries is kept from
    one run to the next, which saves two thirds of the time."""
    sources = [packages / kind / "src" for kind in kinds()]
    files = sorted(str(path) for path in packages.rglob("*.py"))
    arguments = [
        *("--strict", "--config-file=", "--python-version=3.11", "--follow-imports=silent"),
        *("--explicit-package-bases", f"--cache-dir={ROOT / '.mypy_cache' / 'scaffold'}"),
    ]
    path = os.pathsep.join(map(str, [*sources, packages, ROOT]))
    return _run([sys.executable, "-m", "mypy", *arguments, *files], packages, {"MYPYPATH": path})


def _own_tests(packages: Path) -> str:
    """One session over several packages: what each one's `pytest` runs, the conformance kit left
    out, which is run for all of them."""
    tests = [next((packages / kind / "tests").glob("test_new_*.py")) for kind in OWN_TESTS]
    arguments = ["-q", "-p", "no:cacheprovider", "--import-mode=importlib", f"--rootdir={packages}"]
    path = [packages / kind / "src" for kind in OWN_TESTS]
    return _run(
        [sys.executable, "-m", "pytest", *arguments, f"--config-file={os.devnull}"]
        + [str(test) for test in tests],
        packages,
        {"PYTHONPATH": os.pathsep.join(map(str, [*path, ROOT]))},
    )


def _run(command: Sequence[str], directory: Path, environ: Mapping[str, str] | None = None) -> str:
    """Output, with errors, and the exit code as the last word."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FRAMEWORK_")}
    done = subprocess.run(
        command,
        cwd=directory,
        env={**kept, "PYTHONPATH": str(ROOT), **(environ or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return f"{done.stdout}\nexit code {done.returncode}"
