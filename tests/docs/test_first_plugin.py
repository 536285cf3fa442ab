"""The plugin of the guide works as printed: built from the page, then its own test is run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "plugins" / "first-plugin.md"
FILE = re.compile(r"^`([\w/.]+\.(?:py|toml))`:.*?^```\w+\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """The files of the guide, with the metadata that an installer would make of them."""
    for name, text in FILE.findall(PAGE.read_text(encoding="utf-8")):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    project = tomllib.loads((tmp_path / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    stem = f"{project['name'].replace('-', '_')}-{project['version']}"
    metadata = tmp_path / "src" / f"{stem}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    lines = [
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in points.items())
        for group, points in project["entry-points"].items()
    ]
    (metadata / "entry_points.txt").write_text("\n".join(lines))
    return tmp_path


def run(package: Path, *arguments: str) -> str:
    path = os.pathsep.join([str(package / "src"), str(ROOT)])
    done = subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=package,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_test_of_the_guide_passes(package: Path) -> None:
    assert "2 passed" in run(package, "pytest", "-q", "-p", "no:cacheprovider")


def test_check_says_what_the_guide_says(package: Path) -> None:
    program = "framework.cli.main"
    code = f"import sys; from {program} import main; sys.exit(main(sys.argv[1:]))"
    (package / "run_cli.py").write_text(code)
    said = run(package, "run_cli", "plugins", "check", "tenant-limit")
    assert said.strip() in PAGE.read_text(encoding="utf-8")
