"""Signals to a server: when it drains, what its callers get, and how it exits."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.processes.http_calls import complete, health, open_stream
from tests.processes.launches import PATIENCE_S, Place, config, drill_config, until
from tests.processes.programs import Program, server

BOTH = pytest.mark.parametrize("processes", [1, 2])
SIGNALS = pytest.mark.parametrize(
    ("number", "processes"), [(signal.SIGTERM, 1), (signal.SIGINT, 2)]
)


def _settings(processes: int, drain_s: float, **drill: Any) -> dict[str, Any]:
    return drill_config(
        drill={"step_s": 0.01, **drill},
        serving={"drain_timeout_s": drain_s, "processes": processes},
    )


def _end_of_stream(
    program: Program, address: str, number: signal.Signals, max_tokens: int, *, times: int = 1
) -> dict[str, Any]:
    """What a stream gets that is open when the signal comes; new calls are refused meanwhile."""

    async def main() -> dict[str, Any]:
        async with httpx.AsyncClient(timeout=PATIENCE_S) as client:
            stream = await open_stream(client, address, max_tokens)
            program.send(number)
            while await health(client, address) != 503:
                await asyncio.sleep(0.01)
            assert (await asyncio.to_thread(complete, address)).status_code == 503
            for _ in range(1, times):
                program.send(number)
            return await stream.end()

    return asyncio.run(main())


@SIGNALS
def test_open_requests_end_in_the_time_to_drain(
    place: Place, number: signal.Signals, processes: int
) -> None:
    with server(place, _settings(processes, 20.0)) as program:
        end = _end_of_stream(program, program.line(), number, 60)
        assert (end["finish_reason"], end["done"], end["error"]) == ("length", True, None)
        assert program.exit_code() == 0


def test_a_second_signal_ends_them_at_once(place: Place) -> None:
    with server(place, _settings(1, 300.0)) as program:
        end = _end_of_stream(program, program.line(), signal.SIGTERM, 4000, times=2)
        assert (end["error"]["code"], end["done"]) == ("aborted", True), end
        assert program.exit_code() == 0


def test_without_time_to_drain_open_requests_are_aborted(place: Place) -> None:
    async def main(program: Program) -> dict[str, Any]:
        address = program.line()
        async with httpx.AsyncClient(timeout=PATIENCE_S) as client:
            stream = await open_stream(client, address, 4000)
            program.send(signal.SIGTERM)
            return await stream.end()

    with server(place, _settings(1, 0.0)) as program:
        end = asyncio.run(main(program))
        assert (end["error"]["code"], end["done"]) == ("aborted", True), end
        assert program.exit_code() == 0


@BOTH
def test_a_signal_to_all_processes_drains_and_is_no_failure(place: Place, processes: int) -> None:
    """As service managers do it."""

    async def main(program: Program) -> dict[str, Any]:
        address = program.line()
        async with httpx.AsyncClient(timeout=PATIENCE_S) as client:
            stream = await open_stream(client, address, 60)
            for pid in place.processes():
                os.kill(pid, signal.SIGTERM)
            return await stream.end()

    with server(place, _settings(processes, 20.0)) as program:
        end = asyncio.run(main(program))
        assert (end["finish_reason"], end["done"], end["error"]) == ("length", True, None)
        assert program.exit_code() == 0, program.log()


@SIGNALS
def test_a_signal_while_it_starts(
    place: Place, tmp_path: Path, number: signal.Signals, processes: int
) -> None:
    sign = tmp_path / "sign"
    with server(place, _settings(processes, 20.0, start="hang", sign=str(sign))) as program:
        until(sign.exists)
        place.look()
        program.send(number)
        assert program.exit_code() == 0, program.log()
        until(place.is_clean, 1.0)


def test_a_port_in_use_is_told_before_anything_else(place: Place) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ran = subprocess.run(
            [
                *(sys.executable, "-c", "import framework.cli.main as cli; exit(cli.main())"),
                *("serve", "scripted", "--executor.worker=scripted", f"--serving.port={port}"),
            ],
            env=place.environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
    assert ran.returncode == 2
    assert f"127.0.0.1:{port}" in ran.stderr
    assert "serving.port" in ran.stderr
    assert not place.runtime_dirs()


def test_a_model_that_does_not_start_ends_the_server(place: Place) -> None:
    """Also when front ends wait for it."""
    with server(place, _settings(2, 20.0, start="model")) as program:
        assert program.exit_code() == 1
        assert "UnsupportedModelError: architecture Scripted has no drill" in program.log()


def test_a_front_end_that_can_not_be_made_says_so_by_its_own_error(place: Place) -> None:
    settings = config(serving={"processes": 2, "frontend": "drill-front"})
    with server(place, settings) as program:
        assert program.exit_code() == 1
        assert "ConfigError: front end " in program.log()
        assert " has no door" in program.log()
