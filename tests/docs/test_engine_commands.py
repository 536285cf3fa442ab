"""The package of the page on engine commands works as printed."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from tests.docs.guide import ROOT, build, run, run_cli, serve

PAGE = ROOT / "docs" / "plugins" / "engine-commands.md"


@pytest.fixture
def package(tmp_path: Path) -> Path:
    build(PAGE, tmp_path)
    return tmp_path


def test_the_test_of_the_page_passes(package: Path) -> None:
    assert "1 passed" in run(package, "-m", "pytest", "-q", "-p", "no:cacheprovider")


def test_the_package_fits_the_contract(package: Path) -> None:
    assert "roll-call fits plugin API" in run_cli(package, "plugins", "check", "roll-call")


def test_the_route_asks_for_the_command(package: Path) -> None:
    with (
        serve(package, "--plugins.enable=roll-call") as address,
        httpx.Client(base_url=f"http://{address}/plugins/roll-call", trust_env=False) as http,
    ):
        assert http.get("/", params={"most": 5}).json() == {"engines": [{}]}
        for wrong in ("0", "many"):
            refused = http.get("/", params={"most": wrong})
            assert refused.status_code == 400
            assert "roll-call.most" in refused.json()["error"]
