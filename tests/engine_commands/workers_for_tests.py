"""A plugin whose worker has commands that complain."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from builtin_plugins.worker_scripted.options import CAPABILITIES, ScriptedOptions
from builtin_plugins.worker_scripted.worker import ScriptedWorker
from hookspecs import EngineHooks, PluginInfo, Provider, hookimpl
from hookspecs.contracts.worker import Worker, command
from hookspecs.errors import EngineDeadError, UnsupportedFeatureError

__all__ = ["Elsewhere"]


class Complaining(ScriptedWorker):
    """Raises what kernel and executors raise, and an error of its own."""

    @command
    def lacks(self) -> None:
        raise UnsupportedFeatureError("not with this device")

    @command
    def is_late(self) -> None:
        raise TimeoutError("not within 1 s")

    @command
    def is_gone(self) -> None:
        raise EngineDeadError("the worker is gone")

    @command
    def burn(self) -> None:
        raise OSError("hot")


class Elsewhere(EngineHooks):
    """Offers the worker `complaining`."""

    PLUGIN = PluginInfo(name="elsewhere", api=">=1.0,<2")

    @hookimpl
    def register_workers(self) -> Iterable[Provider[Worker]]:
        target: Any = f"{__name__}:Complaining"
        yield Provider("complaining", target, options=ScriptedOptions, capabilities=CAPABILITIES)
