"""The package of the page on side channels works as printed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.guide import ROOT, build, run, run_cli

PAGE = ROOT / "docs" / "plugins" / "side-channels.md"


@pytest.fixture
def package(tmp_path: Path) -> Path:
    build(PAGE, tmp_path)
    return tmp_path


def test_the_test_of_the_page_passes(package: Path) -> None:
    assert "2 passed" in run(package, "-m", "pytest", "-q", "-p", "no:cacheprovider")


def test_the_package_fits_the_contract(package: Path) -> None:
    assert "memory-watch fits plugin API" in run_cli(package, "plugins", "check", "memory-watch")
