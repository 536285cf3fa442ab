"""A later version of the contract: a copy of `hookspecs` with edits, and processes that use it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import hookspecs
from hookspecs.version import API_VERSION

__all__ = [
    "NEW_FIELD",
    "NEW_HOOK",
    "NEW_METHOD",
    "PRESENT",
    "Edit",
    "cli",
    "evolved",
    "python",
    "released_as",
    "snapshot",
]

ROOT = Path(hookspecs.__file__).parents[1]
PRESENT = ".".join(map(str, API_VERSION))


class Edit(NamedTuple):
    """Text of one file of the package that is replaced; it is there once."""

    file: str
    old: str
    new: str


def released_as(major: int, minor: int) -> Edit:
    """The edit that gives the contract a version."""
    line = "API_VERSION: Final = "
    return Edit("version.py", f"{line}{API_VERSION}", f"{line}{(major, minor)}")


_HOOK = '        """The prefix cache was reset."""\n'
NEW_HOOK = Edit(
    "hooks.py",
    _HOOK,
    f"{_HOOK}\n"
    "    @hookspec(kind=HookKind.OBSERVER, roles=(ProcessRole.CORE,))\n"
    "    def on_queue_emptied(self, event: CacheReset) -> None:\n"
    '        """Nothing waits any more."""\n',
)
_FIELD = "    step: int\n    num_scheduled_tokens: int\n"
NEW_FIELD = Edit("events.py", _FIELD, f"{_FIELD}    energy_j: float = 0.0\n")
_METHOD = (
    "    def on_finish(self, request: RequestView, reason: FinishReason) -> None:\n"
    '        """A request that was queued has ended'
)
NEW_METHOD = Edit(
    "contracts/policy.py",
    _METHOD,
    "    def on_idle(self, view: SchedulerView) -> None:\n"
    '        """Nothing runs."""\n\n' + _METHOD,
)


def evolved(tmp_path: Path, edits: Iterable[Edit]) -> Path:
    """The root of a copy of `hookspecs` in which the present version is released, and then edited.

    `python`, `cli` and `snapshot` use the copy in place of the package.
    """
    package = tmp_path / "hookspecs"
    shutil.copytree(
        Path(hookspecs.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__")
    )
    if not (package / "released" / f"{PRESENT}.json").exists():
        for action in ("--write", "--release"):
            done = snapshot(tmp_path, action)
            assert done.returncode == 0, done.stderr
    for file, old, new in edits:
        path = package / file
        text = path.read_text(encoding="utf-8")
        assert text.count(old) == 1, f"{file} no longer has the text to edit: {old!r}"
        path.write_text(text.replace(old, new), encoding="utf-8")
    return tmp_path


def python(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`python …` where `import hookspecs` gives the copy."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FRAMEWORK_")}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=root,
        env={**kept, "PYTHONPATH": os.pathsep.join([str(root), str(ROOT)])},
        capture_output=True,
        text=True,
        check=False,
    )


def cli(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`framework …`."""
    code = "import sys; from framework.cli.main import main; sys.exit(main(sys.argv[1:]))"
    return python(root, "-c", code, *arguments)


def snapshot(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`python -m framework.plugins.snapshot …`."""
    return python(root, "-m", "framework.plugins.snapshot", *arguments)
