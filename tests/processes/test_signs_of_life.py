"""`health`: silent, stuck and busy engine cores."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncGenerator, Callable
from pathlib import Path

import pytest

import framework
from framework.client.vital_signs import VitalSigns
from framework.launcher.asynchronous import AsyncEngine
from framework.transport.messages import Heartbeat
from hookspecs.types.control import EngineHealth
from hookspecs.types.outputs import RequestOutput
from tests.processes.launches import PATIENCE_S, config, drill_config, freeze, long_params
from tests.processes.plugins_for_tests import drill


async def health_when(
    engine: AsyncEngine, holds: Callable[[EngineHealth], bool], limit_s: float = PATIENCE_S
) -> EngineHealth:
    async with asyncio.timeout(limit_s):
        while not holds(health := engine.health()):
            await asyncio.sleep(0.01)
    return health


async def length(outputs: AsyncGenerator[RequestOutput, None]) -> int:
    return sum([len(output.outputs[0].token_ids) async for output in outputs])


def test_a_stopped_core_is_not_ready_until_it_goes_on() -> None:
    settings = config(engine={"heartbeat_timeout_s": 0.5, "stall_timeout_s": 1.0})

    async def main() -> None:
        async with framework.launch_async(settings) as engine:
            outputs = engine.generate([1, 2], long_params(2000), request_id="a")
            got = len((await anext(outputs)).outputs[0].token_ids)
            pid = engine.engine_pids()[0]
            freeze(pid)
            rest = asyncio.create_task(length(outputs))
            health = await health_when(engine, lambda health: not health.ready)
            assert health.live
            assert "engine core 0 gave no sign of life for 0." in health.reason
            await health_when(engine, lambda health: not health.live)
            assert not rest.done()
            os.kill(pid, signal.SIGCONT)
            await health_when(engine, lambda health: health.ready and health.live)
            assert got + await rest == 2000

    asyncio.run(main())


def test_a_step_that_does_not_end_is_told_from_silence(tmp_path: Path) -> None:
    """Heartbeats go on, and say so."""
    gate = tmp_path / "gate"
    settings = drill_config(
        drill={"block_at_step": 3, "gate": str(gate)},
        engine={"heartbeat_timeout_s": 1.0, "stall_timeout_s": 0.6},
    )

    async def main() -> None:
        async with framework.launch_async(settings, plugins=[drill]) as engine:
            rest = asyncio.create_task(
                length(engine.generate([1], long_params(20), request_id="a"))
            )
            health = await health_when(engine, lambda health: not health.ready)
            assert "engine core 0 has been in one step for" in health.reason
            gate.touch()
            assert await rest == 20
            assert engine.health() == EngineHealth(live=True, ready=True)

    asyncio.run(main())


def test_many_steps_are_not_taken_for_a_long_one() -> None:
    """Nearly every heartbeat comes from inside of a step, and they are far apart."""
    settings = drill_config(
        drill={"step_s": 0.02}, engine={"heartbeat_timeout_s": 2.0, "stall_timeout_s": 0.3}
    )

    async def main() -> None:
        async with framework.launch_async(settings, plugins=[drill]) as engine:
            async for _ in engine.generate([1], long_params(60), request_id="a"):
                assert engine.health() == EngineHealth(live=True, ready=True)

    asyncio.run(main())


def test_a_caller_that_does_not_read_is_not_sent_what_it_would_have_to_keep(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Heartbeats of an idle engine whose caller is busy with something else."""
    beats: list[Heartbeat] = []
    monkeypatch.setattr(VitalSigns, "beat", lambda signs, beat: beats.append(beat))
    settings = config(engine={"process": "separate", "heartbeat_timeout_s": 0.01})
    with framework.launch(settings) as engine:
        engine.generate([[1, 2]], long_params(3))
        links = engine.engine._client._links  # type: ignore[attr-defined]
        links.receive(0.1)
        beats.clear()
        assert links.receive(0.2) is None
        assert beats == []
