"""The package of the page on plugins of the front end works as printed."""

from __future__ import annotations

import socket
from pathlib import Path

import httpx
import pytest

from tests.docs.guide import ROOT, build, run, run_cli, serve

PAGE = ROOT / "docs" / "plugins" / "serving.md"


@pytest.fixture
def package(tmp_path: Path) -> Path:
    build(PAGE, tmp_path)
    return tmp_path


def test_the_test_of_the_page_passes(package: Path) -> None:
    assert "1 passed" in run(package, "-m", "pytest", "-q", "-p", "no:cacheprovider")


def test_the_package_fits_the_contract(package: Path) -> None:
    assert "pulse fits plugin API" in run_cli(package, "plugins", "check", "pulse")


def test_the_routes_are_mounted_and_the_exposition_is_in_the_metrics(package: Path) -> None:
    settings = ("--plugins.enable=pulse", "--stats.loggers=longest-wait")
    with serve(package, *settings) as address, httpx.Client(base_url=f"http://{address}") as http:
        status = http.get("/plugins/pulse/status")
        paused = http.post("/plugins/pulse/pause", json={})
        refused = http.post("/plugins/pulse/pause", content=b"{}")
        unknown = http.post("/plugins/pulse/other", json={})
        resumed = http.post("/plugins/pulse/resume", json={})
        metrics = http.get("/metrics").text
    assert [status.json()["state"], paused.json()["state"]] == ["running", "paused"]
    assert (refused.status_code, unknown.status_code) == (415, 404)
    assert resumed.json()["state"] == "running"
    assert "pulse_longest_wait_seconds 0.0" in metrics
    assert "framework_requests_total" in metrics


def test_the_front_end_answers_line_by_line(package: Path) -> None:
    settings = ("--plugins.enable=pulse", "--serving.frontend=lines")
    with serve(package, *settings) as address:
        host, port = address.split(":")
        with socket.create_connection((host, int(port)), timeout=30) as connection:
            connection.sendall(b"1 2 3\nx\n\n1 2 3\n")
            with connection.makefile("rb") as answers:
                first, wrong, empty, again = (answers.readline() for _ in range(4))
    assert len(first.split()) == 4
    assert again == first
    assert wrong.startswith(b"error: ")
    assert empty.startswith(b"error: ")
