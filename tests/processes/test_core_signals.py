"""SIGTERM to the engine core process alone: it drains and ends, and its front end is told."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Any

import pytest

import framework
from framework.launcher.asynchronous import AsyncEngine
from framework.process.supervisor import Child
from hookspecs.errors import CommandError, EngineDeadError, EngineUnavailableError
from hookspecs.types.commands import CommandArguments, GetStatus, Resume, WakeUp
from hookspecs.types.control import EngineState
from hookspecs.types.outputs import RequestOutput
from tests.processes.launches import PATIENCE_S, drill_config, long_params
from tests.processes.plugins_for_tests import drill


async def _last(engine: AsyncEngine, name: str, max_tokens: int) -> tuple[RequestOutput, int]:
    tokens, last = 0, None
    async for output in engine.generate([1, 2], long_params(max_tokens), request_id=name):
        tokens += len(output.outputs[0].token_ids)
        last = output
    assert last is not None
    return last, tokens


def _core_of(engine: AsyncEngine) -> Child:
    processes: Any = engine._host._processes
    (core,) = processes.children
    assert isinstance(core, Child)
    return core


def _settings(drain_s: float) -> dict[str, Any]:
    return drill_config(drill={"step_s": 0.01}, serving={"drain_timeout_s": drain_s})


def test_running_requests_end_and_new_ones_are_refused() -> None:
    async def main() -> None:
        async with framework.launch_async(_settings(20.0), plugins=[drill]) as engine:
            core = _core_of(engine)
            running = asyncio.create_task(_last(engine, "running", 100))
            while not (await engine.run_command(GetStatus())).num_running:
                await asyncio.sleep(0)
            core.signal(signal.SIGTERM)
            with pytest.raises(EngineUnavailableError, match="draining"):
                for number in range(1000):
                    await _last(engine, f"late {number}", 1)
            last, tokens = await running
            assert last.outputs[0].finish_reason == "length"
            assert tokens == 100
            assert "told to stop" in str(await engine.failed())
            with pytest.raises(EngineDeadError, match="told to stop"):
                await _last(engine, "after", 1)
            await asyncio.to_thread(core.ended.wait, PATIENCE_S)
            assert core.exit_code == 0

    asyncio.run(main())


@pytest.mark.parametrize("command", [Resume(), WakeUp()], ids=["resume", "wake_up"])
def test_a_core_that_was_told_to_stop_is_not_taken_back(command: CommandArguments) -> None:
    """Else the process would end at once, with requests in it."""

    async def main() -> None:
        async with framework.launch_async(_settings(20.0), plugins=[drill]) as engine:
            core = _core_of(engine)
            running = asyncio.create_task(_last(engine, "running", 100))
            while not (await engine.run_command(GetStatus())).num_running:
                await asyncio.sleep(0)
            core.signal(signal.SIGTERM)
            while (await engine.run_command(GetStatus())).state is not EngineState.DRAINING:
                await asyncio.sleep(0)
            with pytest.raises(CommandError, match="told to stop"):
                await engine.run_command(command)
            last, tokens = await running
            assert (last.outputs[0].finish_reason, tokens) == ("length", 100)

    asyncio.run(main())


@pytest.mark.parametrize("signals", [1, 2])
def test_requests_that_take_too_long_are_aborted(signals: int) -> None:
    """After the time to drain, or at a second signal."""

    async def main() -> None:
        settings = _settings(0.1 if signals == 1 else 60.0)
        async with framework.launch_async(settings, plugins=[drill]) as engine:
            core = _core_of(engine)
            outputs = engine.generate([1, 2], long_params(), request_id="a")
            await anext(outputs)
            for _ in range(signals):
                os.kill(core.pid, signal.SIGTERM)
                while engine.health().ready:
                    await asyncio.sleep(0.01)
            *_, last = [output async for output in outputs]
            assert last.outputs[0].finish_reason == "abort"
            await asyncio.to_thread(core.ended.wait, PATIENCE_S)
            assert core.exit_code == 0

    asyncio.run(main())
