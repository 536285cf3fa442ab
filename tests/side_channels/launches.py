"""Engines with the plugin `probe`, in either process, and what observers heard."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from framework.launcher import Engine
from hookspecs import EngineHooks, PluginInfo, ProcessRole, hookimpl
from hookspecs.events import EngineStarted, PluginFailed, StepFinished
from tests.core.scripted import greedy, launch_scripted, tokens_of
from tests.side_channels.probe import probe

__all__ = ["PARAMS", "PROMPTS", "Listener", "expected", "launch_probe"]

PROMPTS = [[1, 2, 3], [4, 5, 6, 7, 8], [9]]
PARAMS = greedy(6)


class Listener(EngineHooks):
    """Hears of failures, and of what was chosen."""

    PLUGIN = PluginInfo(name="listener", api=">=1.0,<2", roles=frozenset({ProcessRole.LAUNCHER}))

    def __init__(self) -> None:
        self.failed: list[PluginFailed] = []
        self.started: list[EngineStarted] = []
        self.preempted: list[str] = []

    @hookimpl
    def on_plugin_failed(self, event: PluginFailed) -> None:
        self.failed.append(event)

    @hookimpl
    def on_engine_started(self, event: EngineStarted) -> None:
        self.started.append(event)

    @hookimpl
    def on_step_finished(self, event: StepFinished) -> None:
        self.preempted += event.preempted_request_ids


def launch_probe(
    log: Path,
    *channels: str,
    plugins: Sequence[object] = (),
    options: dict[str, Any] | None = None,
    engine: dict[str, Any] | None = None,
    **sections: Any,
) -> Engine:
    """Small blocks and all checks on, see `launch_scripted`."""
    return launch_scripted(
        plugins=[probe, *plugins],
        engine={"side_channels": channels, **(engine or {})},
        plugins_options={"probe": {"log": str(log), **(options or {})}},
        **sections,
    )


def expected() -> list[list[int]]:
    """The tokens of PROMPTS without any channel."""
    with launch_scripted() as engine:
        return tokens_of(engine.generate(PROMPTS, PARAMS))
