"""The plugin of the guide works as printed: built from the page, then its own test is run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.guide import ROOT, build, run, run_cli

PAGE = ROOT / "docs" / "plugins" / "first-plugin.md"


@pytest.fixture
def package(tmp_path: Path) -> Path:
    build(PAGE, tmp_path)
    return tmp_path


def test_the_test_of_the_guide_passes(package: Path) -> None:
    assert "2 passed" in run(package, "-m", "pytest", "-q", "-p", "no:cacheprovider")


def test_check_says_what_the_guide_says(package: Path) -> None:
    said = run_cli(package, "plugins", "check", "tenant-limit")
    assert said.strip() in PAGE.read_text(encoding="utf-8")
