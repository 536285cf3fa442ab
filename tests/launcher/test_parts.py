"""What stat loggers are told of the process that they are in."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar

import pytest

from framework.config import load_config
from framework.core.choice import resolve_model
from framework.launcher.parts import early_parts
from framework.launcher.sync import no_progress
from framework.plugins.manager import PluginManager
from hookspecs import EngineHooks, PluginInfo, Provider, hookimpl
from hookspecs.contracts.stats import StatLogger, StatLoggerContext

CONFIG: dict[str, Any] = {
    "model": {"name": "scripted"},
    "executor": {"worker": "scripted"},
    "stats": {"loggers": ["keeper"]},
}


class Keeper(StatLogger):
    """Keeps its context."""

    contexts: ClassVar[list[StatLoggerContext]] = []

    def __init__(self, context: StatLoggerContext) -> None:
        super().__init__(context)
        self.contexts.append(context)

    def record(self, scheduler: object, iteration: object, engine_index: int = 0) -> None:
        """Nothing."""


class KeeperPlugin(EngineHooks):
    PLUGIN = PluginInfo(name="keeper", api=">=1.0,<2")

    @hookimpl
    def register_stat_loggers(self) -> Iterable[Provider[StatLogger]]:
        """Offer `keeper`."""
        yield Provider("keeper", f"{__name__}:Keeper")

    @hookimpl
    def on_request_finished(self, event: object) -> None:
        """So that there is a hook to count."""


@pytest.mark.parametrize(
    ("shared", "index", "name"),
    [(False, 0, "frontend"), (True, 0, "frontend-0"), (True, 1, "frontend-1")],
)
def test_front_ends_that_share_their_statistics_have_names_of_their_own(
    tmp_path: Path, shared: bool, index: int, name: str
) -> None:
    manager = PluginManager.build(load_config(CONFIG).config, objects=[KeeperPlugin()])
    with contextlib.ExitStack() as undo:
        early_parts(
            manager,
            resolve_model(manager, no_progress),
            undo,
            shared_dir=str(tmp_path) if shared else None,
            process_index=index,
        )
    calls = [each for each in Keeper.contexts.pop().plugin_calls() if each.plugin == "keeper"]
    assert [each.process for each in calls] == [name]
