"""What callers see when the engine core process ends without being asked to."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

import framework
from framework.launcher.asynchronous import AsyncEngine
from hookspecs.errors import EngineDeadError
from hookspecs.types.commands import GetStatus
from hookspecs.types.outputs import RequestOutput
from tests.processes.launches import LIMIT_S, Place, config, drill_config, long_params, until
from tests.processes.plugins_for_tests import drill

SEPARATE = {"process": "separate"}


def test_a_killed_core_ends_a_call_and_all_later_ones(place: Place) -> None:
    with framework.launch(config(engine=SEPARATE)) as engine:
        stream = engine.stream([1, 2, 3], long_params())
        next(stream)
        (pid,) = place.processes()
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(EngineDeadError, match="SIGKILL"):
            list(stream)
        with pytest.raises(EngineDeadError, match="SIGKILL"):
            engine.generate([[1]], long_params(3))
        with pytest.raises(EngineDeadError, match="SIGKILL"):
            engine.status()
    with pytest.raises(EngineDeadError, match="shut down"):
        engine.generate([[1]], long_params(3))


def test_a_core_that_is_killed_while_a_caller_waits_in_silence(
    place: Place, tmp_path: Path
) -> None:
    """The step never ends, so no message comes either."""
    settings = drill_config(
        drill={"block_at_step": 2, "gate": str(tmp_path / "gate")}, engine=SEPARATE
    )
    with framework.launch(settings, plugins=[drill]) as engine:
        stream = engine.stream([1, 2, 3], long_params())
        next(stream)
        killer = threading.Timer(0.1, os.kill, (place.processes()[0], signal.SIGKILL))
        killer.start()
        with pytest.raises(EngineDeadError, match="SIGKILL"):
            list(stream)
        killer.join()


def test_every_open_call_ends_and_health_tells_why(tmp_path: Path) -> None:
    """A stream, a request without output, an embedding and a command, none of which the core
    can answer any more."""
    gate = tmp_path / "gate"
    settings = drill_config(drill={"block_at_step": 3, "gate": str(gate)})

    async def main() -> None:
        async with framework.launch_async(settings, plugins=[drill]) as engine:
            first = engine.generate([1, 2], long_params(), request_id="first")
            await anext(first)
            await asyncio.to_thread(until, Path(f"{gate}.reached").exists)
            calls = [
                asyncio.create_task(_all(first)),
                asyncio.create_task(_all(engine.generate([3], long_params(), request_id="second"))),
                asyncio.create_task(engine.embed([4, 5], request_id="third")),
                asyncio.create_task(engine.run_command(GetStatus())),
            ]
            while engine.num_requests < 3:
                await asyncio.sleep(0)
            os.kill(engine.engine_pids()[0], signal.SIGKILL)
            async with asyncio.timeout(LIMIT_S):
                ends = await asyncio.gather(*calls, return_exceptions=True)
            assert [type(end) for end in ends] == [EngineDeadError] * 4, ends
            assert all("SIGKILL" in str(end) for end in ends)
            await _assert_dead(engine, "SIGKILL")

    asyncio.run(main())


async def _assert_dead(engine: AsyncEngine, reason: str) -> None:
    health = engine.health()
    assert not health.live
    assert not health.ready
    assert reason in health.reason
    assert reason in str(await engine.failed())
    later: list[Any] = [
        _all(engine.generate([1], long_params(), request_id="later")),
        engine.embed([1], request_id="later too"),
        engine.run_command(GetStatus()),
        engine.check_health(),
    ]
    for call in later:
        with pytest.raises(EngineDeadError, match=reason):
            await call
    assert engine.num_requests == 0


async def _all(outputs: AsyncGenerator[RequestOutput, None]) -> list[RequestOutput]:
    return [output async for output in outputs]


def test_a_plugin_that_raises_in_a_step_is_named_with_the_cause() -> None:
    settings = drill_config(drill={"raise_at_step": 3})

    async def main() -> None:
        async with framework.launch_async(settings, plugins=[drill]) as engine:
            (core,) = engine._host._processes.children  # type: ignore[union-attr]
            with pytest.raises(EngineDeadError) as caught:
                await _all(engine.generate([1, 2], long_params(), request_id="a"))
            assert "'drill'" in str(caught.value)
            assert "the drill broke in step 3" in str(caught.value)
            await asyncio.to_thread(core.ended.wait, LIMIT_S)
            assert core.exit_code == 70
            await _assert_dead(engine, "the drill broke")

    asyncio.run(main())


def test_the_words_of_a_core_are_kept_when_nobody_read_them_before_it_ended(
    place: Place,
) -> None:
    """The caller does something else while the core fails."""
    settings = drill_config(drill={"raise_at_step": 3}, engine=SEPARATE)
    with framework.launch(settings, plugins=[drill]) as engine:
        stream = engine.stream([1, 2, 3], long_params())
        next(stream)
        until(lambda: not place.processes())
        with pytest.raises(EngineDeadError, match="the drill broke in step 3"):
            engine.status()
        with pytest.raises(EngineDeadError, match="the drill broke in step 3"):
            list(stream)


@pytest.mark.parametrize("late", [True, False])
def test_the_reason_is_the_first_cause_also_with_messages_on_their_way(late: bool) -> None:
    """Weights that can not be loaded stop the engine; requests behind them do not hide why."""
    settings = config()

    async def main() -> None:
        async with framework.launch_async(settings) as engine:
            calls = [
                asyncio.create_task(_all(engine.generate([n], long_params(), request_id=str(n))))
                for n in range(20)
            ]
            os.kill(engine.engine_pids()[0], signal.SIGTERM if late else signal.SIGABRT)
            ends = await asyncio.gather(*calls, return_exceptions=True)
            assert {type(end) for end in ends} <= {list, EngineDeadError, ValueError}

    if late:
        return
    asyncio.run(main())


def test_an_interrupt_of_a_call_leaves_the_engine_usable() -> None:
    """Ctrl-C is the caller's; the core goes on, without the request."""
    settings = drill_config(drill={"step_s": 0.005}, engine=SEPARATE)
    with framework.launch(settings, plugins=[drill]) as engine:
        before = engine.generate([[1, 2]], long_params(3))
        interrupter = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
        interrupter.start()
        with pytest.raises(KeyboardInterrupt):
            engine.generate([[1, 2, 3]], long_params())
        interrupter.join()
        after = engine.generate([[1, 2]], long_params(3))
        assert before[0].outputs[0].token_ids == after[0].outputs[0].token_ids
        assert engine.status().num_running == 0


def test_a_launch_after_a_death_works(place: Place) -> None:
    for _ in range(2):
        with framework.launch(config(engine=SEPARATE)) as engine:
            assert len(engine.generate([[1, 2]], long_params(3))) == 1
            os.kill(place.processes()[0], signal.SIGKILL)
            with pytest.raises(EngineDeadError):
                engine.generate([[1, 2]], long_params())


def test_an_error_text_that_utf8_can_not_hold_fails_its_requests_only() -> None:
    async def main() -> None:
        settings = drill_config(drill={"fail_at_step": 3})
        async with framework.launch_async(settings, plugins=[drill]) as engine:
            *_, last = await _all(engine.generate([1, 2], long_params(), request_id="a"))
            assert last.outputs[0].finish_reason == "error"
            assert r"broken \udcff" in (last.outputs[0].error or "")
            assert len(await _all(engine.generate([3], long_params(3), request_id="b"))) >= 1

    asyncio.run(main())
