"""Several engine cores behind one front end, and several front ends before one engine core."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncGenerator

import pytest

from framework.frontend.async_llm import AsyncLLM
from hookspecs.errors import EngineDeadError
from hookspecs.types.commands import GetStatus
from hookspecs.types.outputs import RequestOutput
from tests.processes.hosts import front_end, hosted
from tests.processes.launches import config, drill_config, long_params

SLOW = drill_config(drill={"step_s": 0.002})


async def _tokens(outputs: AsyncGenerator[RequestOutput, None]) -> list[int]:
    return [token async for output in outputs for token in output.outputs[0].token_ids]


async def _running(engine: AsyncLLM) -> list[int]:
    statuses = await engine.run_command(GetStatus())
    return [status.num_running + status.num_waiting for status in statuses]


def test_requests_are_spread_by_load_and_aborts_find_theirs() -> None:
    async def main() -> None:
        async with front_end(linked, num_engines=2) as (engine, client):
            names = [str(number) for number in range(8)]
            streams = {
                name: engine.generate([1, 2], long_params(), request_id=name) for name in names
            }
            for stream in streams.values():
                await anext(stream)
            assert await _running(engine) == [4, 4]
            # The first goes to one engine, the second to the other, and so on.
            for name in names[1::2]:
                await engine.abort(name)
            assert await _running(engine) == [4, 0]
            more = {
                name: engine.generate([5], long_params(), request_id=name) for name in ("x", "y")
            }
            for stream in more.values():
                await anext(stream)
            assert await _running(engine) == [4, 2]
            for name in (*streams, *more):
                await engine.abort(name)
            assert await _running(engine) == [0, 0]
            while client.num_unfinished:
                await asyncio.sleep(0)
            assert client._ledger._counts == [0, 0]

    with hosted(SLOW, num_engines=2) as (_, (linked,)):
        asyncio.run(main())


def test_all_outputs_of_one_prompt_go_to_one_engine() -> None:
    async def main() -> None:
        async with front_end(linked, num_engines=2) as (engine, _):
            params = long_params(n=3, temperature=1.0, seed=1)
            outputs = engine.generate([1, 2], params, request_id="a")
            await anext(outputs)
            assert await _running(engine) == [3, 0]
            await engine.abort("a")

    with hosted(SLOW, num_engines=2) as (_, (linked,)):
        asyncio.run(main())


def test_results_do_not_depend_on_the_number_of_engines() -> None:
    async def main(num_engines: int) -> list[list[int]]:
        async with front_end(linked, num_engines=num_engines) as (engine, client):
            results = await asyncio.gather(
                *(
                    _tokens(engine.generate([n, n + 1], long_params(20 + n), request_id=str(n)))
                    for n in range(12)
                )
            )
            assert client.num_unfinished == 0
            return results

    found = []
    for num_engines in (1, 2):
        with hosted(config(), num_engines=num_engines) as (_, (linked,)):
            found.append(asyncio.run(main(num_engines)))
    assert found[0] == found[1]


def test_the_death_of_one_engine_names_it() -> None:
    async def main() -> None:
        async with front_end(linked, num_engines=2) as (engine, _):
            streams = [
                asyncio.create_task(_tokens(engine.generate([1], long_params(), request_id=name)))
                for name in ("a", "b")
            ]
            while engine.num_requests < 2:
                await asyncio.sleep(0)
            os.kill(host.pids()[1], signal.SIGKILL)
            ends = await asyncio.gather(*streams, return_exceptions=True)
            assert [type(end) for end in ends] == [EngineDeadError] * 2
            assert "engine core 1 is dead" in str(ends[0])
            assert "engine core 1" in str(await engine.failed())

    with hosted(SLOW, num_engines=2) as (host, (linked,)):
        asyncio.run(main())


def test_outputs_go_to_the_front_end_that_asked() -> None:
    """Both use the same names and handles for their requests."""

    async def main() -> None:
        async with (
            front_end(both[0], client_index=0) as (first, _),
            front_end(both[1], client_index=1) as (second, client),
        ):
            mine = first.generate([1, 2, 3], long_params(200), request_id="same")
            theirs = second.generate([7, 8], long_params(), request_id="same")
            begun = len((await anext(mine)).outputs[0].token_ids)
            await anext(theirs)
            await second.abort("same")
            rest = await _tokens(theirs)
            assert len(rest) < 4000
            others = [
                asyncio.create_task(
                    _tokens(engine.generate([start + n], long_params(30), request_id=str(n)))
                )
                for n in range(6)
                for engine, start in ((first, 10), (second, 20))
            ]
            assert begun + len(await _tokens(mine)) == 200
            results = await asyncio.gather(*others)
            alone = [
                await _tokens(
                    first.generate([start + n], long_params(30), request_id=f"{start}{n}")
                )
                for n in range(6)
                for start in (10, 20)
            ]
            assert results == alone
            assert client.num_unfinished == 0

    with hosted(config(), front_ends=2) as (_, both):
        asyncio.run(main())


def test_commands_of_two_front_ends_are_answered_to_each() -> None:
    async def main() -> None:
        async with (
            front_end(both[0], client_index=0) as (first, _),
            front_end(both[1], client_index=1) as (second, _),
        ):
            statuses = await asyncio.gather(
                *(engine.run_command(GetStatus()) for engine in (first, second) for _ in range(20))
            )
            assert len(statuses) == 40
            await first.pause()
            while second.health().ready:  # it hears of it
                await asyncio.sleep(0.01)
            await second.resume()

    with hosted(config(), front_ends=2) as (_, both):
        asyncio.run(main())


def test_a_front_end_that_goes_away_does_not_disturb_the_other() -> None:
    async def main() -> None:
        async with front_end(both[0], client_index=0) as (first, _):
            async with front_end(both[1], client_index=1) as (second, _):
                await anext(second.generate([1], long_params(), request_id="left"))
            both[1].links.close()
            assert len(await _tokens(first.generate([2], long_params(500), request_id="a"))) == 500
            with pytest.raises(EngineDeadError):
                await second.run_command(GetStatus())

    with hosted(config(), front_ends=2) as (_, both):
        asyncio.run(main())
