"""Control commands across the process boundary, while requests run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from framework import AsyncEngine, RequestOutput
from hookspecs.errors import (
    CommandError,
    EngineUnavailableError,
    InvalidRequestError,
    UnsupportedFeatureError,
)
from hookspecs.types.control import EngineState, PauseMode, WakeTag
from tests.async_llm.conftest import Run
from tests.async_llm.engines import greedy, joined, streamed

LONG = 100_000


async def started(
    engine: AsyncEngine, request_id: str, max_tokens: int = LONG
) -> AsyncIterator[RequestOutput]:
    """A request that has output something."""
    outputs = engine.generate([3, 4], greedy(max_tokens), request_id=request_id)
    await anext(outputs)
    return outputs


def test_pause_abort(engine: AsyncEngine, run: Run[Any]) -> None:
    async def body() -> None:
        outputs = await started(engine, "a")
        status = await engine.pause()
        assert (status.state, status.pause_mode) == (EngineState.PAUSED, PauseMode.ABORT)
        assert (status.num_running, status.num_waiting) == (0, 0)
        assert joined(await streamed(outputs)).finish_reason == "abort"
        assert await engine.is_paused()
        assert not engine.health().ready and engine.health().live
        late = asyncio.create_task(streamed(engine.generate([1], greedy(2), request_id="b")))
        while not (await engine.status()).num_waiting:
            pass
        assert (await engine.resume()).state is EngineState.RUNNING
        assert engine.health().ready
        assert len(joined(await late).token_ids) == 2
        assert not await engine.is_paused()

    run(body())


def test_pause_wait_and_cancelling_it(engine: AsyncEngine, run: Run[Any]) -> None:
    async def body() -> None:
        outputs = await started(engine, "a")
        pause = asyncio.create_task(engine.pause("wait"))
        while (await engine.status()).state is not EngineState.PAUSING:
            pass
        pause.cancel()
        with pytest.raises(asyncio.CancelledError):
            await pause
        again = asyncio.create_task(engine.pause(PauseMode.WAIT))
        await engine.abort("a")
        assert (await again).state is EngineState.PAUSED
        await streamed(outputs)
        await engine.resume()

    run(body())


def test_resume_takes_back_a_pause_that_waits(engine: AsyncEngine, run: Run[Any]) -> None:
    async def body() -> None:
        outputs = await started(engine, "a")
        pause = asyncio.create_task(engine.pause("wait"))
        while (await engine.status()).state is not EngineState.PAUSING:
            pass
        await engine.resume()
        with pytest.raises(CommandError, match="superseded by resume"):
            await pause
        await engine.abort("a")
        await streamed(outputs)

    run(body())


def test_pause_keep(engine: AsyncEngine, run: Run[Any]) -> None:
    async def body() -> None:
        expected = joined(
            await streamed(engine.generate([3, 4], greedy(300), request_id="a"))
        ).token_ids
        outputs = engine.generate([3, 4], greedy(300), request_id="a")
        seen = [await anext(outputs)]
        status = await engine.pause("keep")
        assert status.num_running + status.num_waiting == 1
        await engine.resume()
        seen += await streamed(outputs)
        assert joined(seen).token_ids == expected

    run(body())


def test_sleep_refuses_requests_until_it_is_woken(engine: AsyncEngine, run: Run[Any]) -> None:
    async def body() -> None:
        outputs = await started(engine, "a")
        status = await engine.sleep(1)
        assert (status.state, status.sleep_level) == (EngineState.SLEEPING, 1)
        assert joined(await streamed(outputs)).finish_reason == "abort"
        assert await engine.is_sleeping()
        # At once, from what was told with the answer.
        for _ in range(2):
            with pytest.raises(EngineUnavailableError, match="sleeping") as caught:
                await anext(engine.generate([1], greedy(1), request_id="b"))
            assert caught.value.retry_after_s > 0
        with pytest.raises(EngineUnavailableError):
            await engine.embed([1], request_id="b")
        status = await engine.wake_up(["weights"])
        assert status.state is EngineState.WAKING
        assert WakeTag.KV_CACHE in status.asleep
        assert await engine.is_sleeping()
        with pytest.raises(EngineUnavailableError, match="waking"):
            await anext(engine.generate([1], greedy(1), request_id="b"))
        assert (await engine.wake_up([WakeTag.KV_CACHE])).state is EngineState.PAUSED
        assert (await engine.wake_up()).state is EngineState.RUNNING
        assert len(await streamed(engine.generate([1], greedy(2), request_id="b"))) > 0

    run(body())


@pytest.mark.parametrize("call", ["generate", "embed", "pieces"])
def test_a_request_that_crosses_sleep_on_its_way_is_refused_as_one_after_it(
    engine: AsyncEngine, run: Run[Any], call: str
) -> None:
    """The front end does not know of the sleep yet; the engine core gets it before the request."""

    async def pieces() -> AsyncIterator[list[int]]:
        yield [1]

    async def body() -> None:
        calls: dict[str, Callable[[], Coroutine[Any, Any, Any]]] = {
            "generate": lambda: streamed(
                engine.generate([1], greedy(3, n=2, temperature=1), request_id="a")
            ),
            "embed": lambda: engine.embed([1], request_id="a"),
            "pieces": lambda: streamed(engine.generate(pieces(), greedy(3), request_id="a")),
        }
        # In this order within one turn of the loop.
        sleeping, request = (
            asyncio.ensure_future(each) for each in (engine.sleep(0), calls[call]())
        )
        with pytest.raises(EngineUnavailableError, match="sleeping") as caught:
            await request
        assert caught.value.retry_after_s > 0
        await sleeping
        await engine.wake_up()
        assert engine.num_requests == 0
        await streamed(engine.generate([1], greedy(2), request_id="a"))

    run(body())


def test_reset_prefix_cache(engine: AsyncEngine, run: Run[Any]) -> None:
    async def body() -> None:
        prompt = list(range(5, 25))
        await streamed(engine.generate(prompt, greedy(1), request_id="a"))
        (warm, *_) = await streamed(engine.generate(prompt, greedy(1), request_id="a"))
        assert warm.num_cached_tokens > 0
        assert await engine.reset_prefix_cache() is True
        (cold, *_) = await streamed(engine.generate(prompt, greedy(1), request_id="a"))
        assert cold.num_cached_tokens == 0
        outputs = await started(engine, "a")
        assert await engine.reset_prefix_cache() is False
        assert await engine.reset_prefix_cache(preempt_running=True) is True
        await engine.abort("a")
        await streamed(outputs)

    run(body())


def test_update_weights(engine: AsyncEngine, run: Run[Any], tmp_path: Path) -> None:
    async def body() -> None:
        async def answer() -> list[int]:
            outputs = engine.generate([3, 4], greedy(5), request_id="a")
            return joined(await streamed(outputs)).token_ids

        before = await answer()
        status = await engine.update_weights(tensors={"offset": np.array([5])}, version="v2")
        assert (status.state, status.weights_version) == (EngineState.RUNNING, "v2")
        assert await answer() != before
        await engine.update_weights(tensors={"offset": np.array([0])})
        assert await answer() == before
        for wrong in ({}, {"path": "x", "tensors": {}}):
            with pytest.raises(InvalidRequestError):
                await engine.update_weights(**wrong)  # type: ignore[arg-type]
        with pytest.raises(InvalidRequestError):
            await engine.update_weights(str(tmp_path / "gone"))
        outputs = await started(engine, "a")
        with pytest.raises(CommandError):
            await engine.update_weights(tensors={"offset": np.array([5])})
        await engine.abort("a")
        await streamed(outputs)

    run(body())


def test_what_the_worker_can_not_do_is_refused(engine: AsyncEngine, run: Run[Any]) -> None:
    async def body() -> None:
        for call in (
            engine.start_profile("/tmp"),
            engine.stop_profile(),
            engine.load_adapter("a", "/tmp"),
            engine.unload_adapter("a"),
            engine.list_adapters(),
            engine.command("list_adapters", {}),
        ):
            with pytest.raises(UnsupportedFeatureError, match="capability"):
                await call

    run(body())


def test_collective_rpc(engine: AsyncEngine, run: Run[Any]) -> None:
    async def body() -> None:
        with pytest.raises(CommandError, match="no_such"):
            await engine.collective_rpc("no_such")
        with pytest.raises(CommandError, match="use the command sleep"):
            await engine.collective_rpc("sleep", [1])
        for timeout in (0, -1.0, "soon"):
            with pytest.raises(InvalidRequestError) as caught:
                await engine.collective_rpc("x", timeout_s=timeout)  # type: ignore[arg-type]
            assert caught.value.param == "timeout_s"

    run(body())


def test_wrong_arguments_are_named(engine: AsyncEngine, run: Run[Any]) -> None:
    async def body() -> None:
        for call, param in (
            (engine.pause("now"), "mode"),
            (engine.pause(clear_cache="yes"), "clear_cache"),  # type: ignore[arg-type]
            (engine.sleep(3), "level"),
            (engine.wake_up("weights"), "tags"),
            (engine.wake_up(["brain"]), "tags"),
        ):
            with pytest.raises(InvalidRequestError) as caught:
                await call
            assert caught.value.param == param
        with pytest.raises(InvalidRequestError) as caught:
            await engine.drain(float("nan"))
        assert caught.value.param == "timeout_s"

    run(body())


def test_commands_by_name_answer_plain_values(engine: AsyncEngine, run: Run[Any]) -> None:
    async def body() -> None:
        status = await engine.command("pause", {"mode": "keep"})
        assert (status["state"], status["pause_mode"]) == ("paused", "keep")
        assert type(status["state"]) is str
        assert (await engine.command("resume", {}))["state"] == "running"
        assert await engine.command("reset_prefix_cache", {"preempt_running": True}) is True

    run(body())


@pytest.mark.parametrize(
    ("name", "arguments", "param"),
    [
        ("paws", {}, "name"),
        (["pause"], {}, "name"),
        ("pause", {"mode": "now"}, "mode"),
        ("pause", {"mod": "keep"}, "mod"),
        ("pause", [], "arguments"),
        ("pause", {1: 2}, "arguments"),
        ("sleep", {"level": 7}, "level"),
        ("sleep", {"level": "1"}, "level"),
        ("wake_up", {"tags": ["brain"]}, "tags"),
        ("collective_rpc", {}, "command"),
        ("drain", {"timeout_s": -1}, "timeout_s"),
    ],
)
def test_wrong_commands_by_name(
    engine: AsyncEngine, run: Run[Any], name: Any, arguments: Any, param: str
) -> None:
    async def body() -> None:
        with pytest.raises(InvalidRequestError) as caught:
            await engine.command(name, arguments)
        assert caught.value.param == param

    run(body())


def test_commands_while_streams_run(engine: AsyncEngine, run: Run[Any]) -> None:
    async def body() -> None:
        streams = [
            asyncio.create_task(
                streamed(engine.generate([number + 3], greedy(150), request_id=f"r{number}"))
            )
            for number in range(8)
        ]
        steps = []
        while not all(stream.done() for stream in streams):
            await engine.pause("keep", clear_cache=False)
            await engine.resume()
            statuses = await asyncio.gather(*[engine.status() for _ in range(3)])
            steps += [status.step for status in statuses]
        assert steps == sorted(steps)
        for stream in streams:
            assert len(joined(await stream).token_ids) == 150

    run(body())
