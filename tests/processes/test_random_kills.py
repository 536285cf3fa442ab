"""Fifty kills at random moments under load."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from contextlib import aclosing

import pytest

import framework
from framework.launcher.asynchronous import AsyncEngine
from hookspecs.errors import EngineDeadError
from tests.processes.launches import LIMIT_S, Place, config, long_params, until
from tests.processes.programs import parent

STREAMS = 8


@pytest.mark.slow
def test_kills_of_the_core(place: Place) -> None:
    """Each open call ends in time, and the next launch works."""
    chosen = _seeded()

    async def stream(engine: AsyncEngine, name: str) -> None:
        while True:
            length = chosen.randint(1, 400)
            outputs = engine.generate([1, 2, 3], long_params(length), request_id=name)
            async with aclosing(outputs):
                async for _ in outputs:
                    pass

    async def kill_once() -> None:
        async with framework.launch_async(config()) as engine:
            calls = [asyncio.create_task(stream(engine, str(n))) for n in range(STREAMS)]
            await asyncio.sleep(chosen.uniform(0.0, 0.2))
            os.kill(engine.engine_pids()[0], signal.SIGKILL)
            async with asyncio.timeout(LIMIT_S):
                ends = await asyncio.gather(*calls, return_exceptions=True)
            assert {type(end) for end in ends} == {EngineDeadError}, ends

    for _ in range(40):
        asyncio.run(kill_once())
        assert place.is_clean()


@pytest.mark.slow
def test_kills_of_the_front_end(place: Place) -> None:
    """The core ends by itself, and nothing is left."""
    chosen = _seeded()
    for _ in range(10):
        with parent(place, config(), streams=STREAMS) as program:
            program.line()
            time.sleep(chosen.uniform(0.0, 0.2))
            program.send(signal.SIGKILL)
            until(place.is_clean, LIMIT_S)


def _seeded() -> random.Random:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    return random.Random(seed)
