"""When a front end ends, and by which exit code."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from framework.config import load_config
from framework.launcher import front_end
from framework.launcher.front_end import StopSign, run_front_end
from framework.plugins.manager import PluginManager
from framework.process.exit_codes import ExitCode
from hookspecs.errors import EngineDeadError
from tests.processes.launches import drill_config
from tests.processes.plugins_for_tests import drill


class Engine:
    """As much of an engine as is asked here."""

    num_requests = 0

    def __init__(self, *, dead: bool) -> None:
        self._dead = dead
        self.drained: list[float] = []

    async def failed(self) -> BaseException:
        if not self._dead:
            await asyncio.Event().wait()
        return EngineDeadError("it was told to stop")

    async def drain(self, timeout_s: float) -> None:
        self.drained.append(timeout_s)


def _run(engine: Any, stop_after: list[float]) -> ExitCode:
    """`stop_after`: the times to drain with which it is told to stop, before it begins."""
    settings = drill_config(serving={"frontend": "drill-idle"})
    plugins = PluginManager.build(load_config(settings).config, objects=[drill])

    async def main() -> ExitCode:
        stop = StopSign()
        for drain_s in stop_after:
            stop.stop(drain_s)
        return await run_front_end(
            engine, plugins, listen_fd=-1, process_index=0, stop=stop, serving=lambda: None
        )

    return asyncio.run(main())


def test_an_engine_that_ends_with_its_server_is_no_failure() -> None:
    """A signal to all processes ends both at the same time."""
    assert _run(Engine(dead=True), [5.0]) is ExitCode.STOPPED


def test_an_engine_that_is_dead_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(front_end, "LAST_ANSWERS_S", 0.01)
    assert _run(Engine(dead=True), []) is ExitCode.ENGINE_FAILED


def test_the_same_stop_told_twice_does_not_hurry() -> None:
    """By a signal to all processes, and once more by the parent that got it, too."""
    engine = Engine(dead=False)
    assert _run(engine, [5.0, 5.0]) is ExitCode.STOPPED
    assert engine.drained == [5.0]


def test_the_second_signal_means_at_once() -> None:
    async def main() -> None:
        stop = StopSign()
        stop.on_signal(5.0)
        await stop.told()
        assert stop.drain_s == 5.0
        stop.on_signal(5.0)
        await stop.told_at_once()

    asyncio.run(main())
