"""What plugins raise in the front end, and the end of the task that takes outputs: an engine of
its own."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from framework import AsyncEngine
from hookspecs import EngineHooks, PluginInfo, hookimpl
from hookspecs.errors import EngineDeadError, RequestFailedError
from hookspecs.events import OutputReady, RequestReceived
from tests.async_llm.engines import greedy, joined, launch, run_alone, streamed

LONG = 100_000
ERRORS: dict[str, type[BaseException]] = {
    each.__name__: each for each in (ValueError, SystemExit, asyncio.CancelledError, GeneratorExit)
}


class Failing(EngineHooks):
    """Raises what a request's id says: `request/` or `output/`, and the name of the error."""

    PLUGIN = PluginInfo(name="failing", api=">=1.0,<2")

    @hookimpl
    def adjust_request(self, event: RequestReceived) -> None:
        self._fail(event.request_id, "request")

    @hookimpl
    def adjust_output(self, event: OutputReady) -> None:
        self._fail(event.output.request_id, "output")

    def _fail(self, request_id: str, where: str) -> None:
        place, _, error = request_id.partition("/")
        if place == where:
            raise ERRORS[error]


plugin = Failing()


async def opened(engine: AsyncEngine, request_id: str) -> Any:
    """A request that has output something and goes on."""
    outputs = engine.generate([3, 4], greedy(LONG), request_id=request_id)
    await anext(outputs)
    return outputs


def test_whatever_a_filter_raises_fails_its_request_only() -> None:
    async def body() -> None:
        async with launch(plugins=[plugin]) as engine:
            other = await opened(engine, "other")
            for error in ERRORS:
                with pytest.raises(RequestFailedError, match=error):
                    await streamed(engine.generate([3], greedy(2), request_id=f"request/{error}"))
                outputs = engine.generate([3], greedy(2), request_id=f"output/{error}")
                end = joined(await streamed(outputs))
                assert end.finish_reason == "error"
                assert error in str(end.error)
                await anext(other)
            await other.aclose()
            assert engine.health().ready

    run_alone(body())


def test_the_end_of_the_task_that_takes_outputs_fails_every_request() -> None:
    """Whoever ended it: without it they would wait for ever, at an engine that looks healthy."""

    async def body() -> None:
        async with launch() as engine:
            await engine.pause("wait")
            waiting = asyncio.create_task(
                streamed(engine.generate([3], greedy(2), request_id="waits"))
            )
            while not engine.num_requests:
                await asyncio.sleep(0)
            (task,) = [each for each in asyncio.all_tasks() if each.get_name() == "outputs"]
            task.cancel()
            with pytest.raises(EngineDeadError, match=r"front end failed.*cancelled"):
                await waiting
            assert "cancelled" in str(await engine.failed())
            assert not engine.health().live
            with pytest.raises(EngineDeadError):
                await streamed(engine.generate([3], greedy(2), request_id="new"))

    run_alone(body())
