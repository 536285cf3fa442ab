"""A server of two front-end processes behind one port."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from tests.processes.http_calls import Stream, complete, health, metric, open_stream
from tests.processes.launches import PATIENCE_S, Place, drill_config, freeze, until
from tests.processes.programs import Program, server


def _settings(**drill: Any) -> dict[str, Any]:
    return drill_config(
        drill={"step_s": 0.005, **drill},
        serving={"processes": 2, "stat_loggers": ["prometheus"]},
    )


@contextmanager
def _alone(program: Program, index: int) -> Iterator[None]:
    """Only one front end takes connections; the other is stopped."""
    other = program.children("front-end")[1 - index]
    freeze(other)
    try:
        yield
    finally:
        os.kill(other, signal.SIGCONT)


async def _streams(client: httpx.AsyncClient, program: Program, address: str) -> list[Stream]:
    """One on each front end."""
    streams = []
    for index in range(2):
        with _alone(program, index):
            streams.append(await open_stream(client, address, 4000))
    return streams


def test_both_answer_share_their_statistics_and_drain(place: Place) -> None:
    """Requests have the same names on both, and yet do not get in each other's way."""
    with server(place, _settings()) as program:
        address = program.line()
        assert len(program.children("front-end")) == 2
        answers = []
        for index in range(2):
            with _alone(program, index):
                same = {"x-request-id": "same"}
                answers += [complete(address, headers=same) for _ in range(2 + index)]
        assert [answer.status_code for answer in answers] == [200] * 5
        assert len({str(answer.json()["choices"][0]["token_ids"]) for answer in answers}) == 1

        async def main() -> None:
            async with httpx.AsyncClient(timeout=PATIENCE_S) as client:
                streams = await _streams(client, program, address)
                running = "framework_num_requests_running"
                await asyncio.to_thread(until, lambda: metric(address, running) == 2)
                await streams[1].close()
                await asyncio.to_thread(until, lambda: metric(address, running) == 1)
                for index in range(2):
                    with _alone(program, index):
                        ended = await asyncio.to_thread(metric, address, "framework_requests_total")
                        assert ended == 6
                for _ in range(2):
                    program.send(signal.SIGTERM)
                    while await health(client, address) != 503:
                        await asyncio.sleep(0.01)
                end = await streams[0].end()
                assert (end["error"]["code"], end["done"]) == ("aborted", True), end

        asyncio.run(main())
        assert program.exit_code() == 0, program.log()


@pytest.mark.parametrize("victim", ["front-end-1", "engine-core-0"])
def test_the_death_of_one_process_ends_the_server(place: Place, victim: str) -> None:
    async def main() -> None:
        async with httpx.AsyncClient(timeout=PATIENCE_S) as client:
            streams = await _streams(client, program, address)
            (pid,) = program.children(victim)
            os.kill(pid, signal.SIGKILL)
            async with asyncio.timeout(PATIENCE_S):
                ends = [await stream.end() for stream in streams]
            if victim == "engine-core-0":
                assert all("SIGKILL" in str(end["error"]) for end in ends), ends
            else:
                assert ends[0]["error"]["code"] == "aborted", ends
                assert ends[1]["error"], ends

    with server(place, _settings()) as program:
        address = program.line()
        asyncio.run(main())
        assert program.exit_code() == 70
        assert f"{victim} (process" in program.log()
        assert "was killed by SIGKILL" in program.log()
        until(place.is_clean, 1.0)


def test_a_core_that_is_killed_while_the_server_drains(place: Place) -> None:
    """Nobody waits for what can not come any more."""
    settings = drill_config(
        drill={"step_s": 0.005}, serving={"processes": 2, "drain_timeout_s": 300.0}
    )

    async def main() -> None:
        async with httpx.AsyncClient(timeout=PATIENCE_S) as client:
            stream = await open_stream(client, address, 4000)
            program.send(signal.SIGTERM)
            while await health(client, address) != 503:
                await asyncio.sleep(0.01)
            os.kill(program.children("engine-core")[0], signal.SIGKILL)
            end = await stream.end()
            assert "SIGKILL" in str(end["error"]), end

    with server(place, settings) as program:
        address = program.line()
        asyncio.run(main())
        program.exit_code()


def test_the_death_of_the_launcher_ends_all(place: Place) -> None:
    with server(place, _settings()) as program:
        program.line()
        assert len(place.processes()) == 4
        program.send(signal.SIGKILL)
        until(place.is_clean)


def test_a_dead_core_of_a_server_of_one_process(place: Place) -> None:
    """It answers a while longer, so that callers and probes are told."""
    settings = drill_config(drill={"step_s": 0.005})

    async def main() -> None:
        async with httpx.AsyncClient(timeout=PATIENCE_S) as client:
            stream = await open_stream(client, address, 4000)
            os.kill(program.children("engine-core")[0], signal.SIGKILL)
            end = await stream.end()
            assert "SIGKILL" in str(end["error"])
            health = await client.get(f"{address}/health")
            assert health.status_code == 503
            assert "SIGKILL" in health.text
            assert (await asyncio.to_thread(complete, address)).status_code == 503

    with server(place, settings) as program:
        address = program.line()
        asyncio.run(main())
        assert program.exit_code() == 70
