"""A program that owns an engine, for tests that kill it: `python -m … SETTINGS STREAMS`.

SETTINGS is JSON. It prints the process ids of its engine cores once STREAMS requests have had
their first output, and goes on until it is killed.
"""

from __future__ import annotations

import asyncio
import json
import sys

import framework
from framework.launcher.asynchronous import AsyncEngine
from tests.processes.launches import long_params
from tests.processes.plugins_for_tests import drill


async def _main() -> None:
    async with framework.launch_async(json.loads(sys.argv[1]), plugins=[drill]) as engine:
        started = [asyncio.Event() for _ in range(int(sys.argv[2]))]
        tasks = [
            asyncio.create_task(_stream(engine, f"s{index}", begun))
            for index, begun in enumerate(started)
        ]
        for begun in started:
            await begun.wait()
        print(json.dumps(engine.engine_pids()), flush=True)
        await asyncio.gather(*tasks, asyncio.Event().wait())


async def _stream(engine: AsyncEngine, name: str, begun: asyncio.Event) -> None:
    while True:
        async for _ in engine.generate([1, 2, 3], long_params(2000), request_id=name):
            begun.set()


if __name__ == "__main__":
    asyncio.run(_main())
