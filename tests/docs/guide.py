"""The package that a page for plugin authors shows, file by file, as it would be installed."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

__all__ = ["ROOT", "build", "execute", "run", "run_cli", "serve", "write_metadata"]

ROOT = Path(__file__).parents[2]
FILE = re.compile(r"^`([\w/.]+\.(?:py|toml))`:.*?^```\w+\n(.*?)^```", re.MULTILINE | re.DOTALL)
CLI = "import sys; from framework.cli.main import main; sys.exit(main(sys.argv[1:]))"


def build(page: Path, package: Path) -> None:
    """Write the files of the page, and their metadata."""
    for name, text in FILE.findall(page.read_text(encoding="utf-8")):
        path = package / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    write_metadata(package)


def write_metadata(package: Path) -> None:
    """What an installer would make of the package's `pyproject.toml`."""
    project = tomllib.loads((package / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    stem = f"{project['name'].replace('-', '_')}-{project['version']}"
    metadata = package / "src" / f"{stem}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    lines = [
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in points.items())
        for group, points in project["entry-points"].items()
    ]
    (metadata / "entry_points.txt").write_text("\n".join(lines))


def run(package: Path, *arguments: str) -> str:
    """What `python …` says with the package on the path; it must succeed."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=package,
        env=_environment(package),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def execute(directory: Path, program: str, *arguments: str) -> tuple[int, str]:
    """Exit code and output, with errors, of `framework`, `pytest` or `python`, in a directory whose
    `src` is on the path."""
    words = {
        "framework": ["-c", CLI],
        "pytest": ["-m", "pytest", "-p", "no:cacheprovider"],
        "python": [],
    }
    done = subprocess.run(
        [sys.executable, *words[program], *arguments],
        cwd=directory,
        env=_environment(directory),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return done.returncode, done.stdout


def run_cli(package: Path, *arguments: str) -> str:
    """What `framework …` says."""
    return run(package, "-c", CLI, *arguments)


@contextlib.contextmanager
def serve(package: Path, *settings: str) -> Iterator[str]:
    """`host:port` of a server of the scripted model that runs meanwhile."""
    command = ["serve", "scripted", "--executor.worker=scripted", "--serving.port=0"]
    process = subprocess.Popen(
        [sys.executable, "-c", CLI, *command, *settings],
        cwd=package,
        env=_environment(package),
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    said = ""
    try:
        for line in process.stderr:
            said += line
            if found := re.search(r"serving .* at http://(\S+)", line):
                yield found[1]
                break
        else:
            raise AssertionError(said)
    finally:
        process.terminate()
        _, rest = process.communicate()
    assert process.returncode == 0, said + rest


def _environment(package: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FRAMEWORK_")}
    return {**kept, "PYTHONPATH": os.pathsep.join([str(package / "src"), str(ROOT)])}
