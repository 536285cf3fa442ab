"""Registers the executor `uniproc`."""

from __future__ import annotations

from collections.abc import Iterable

from hookspecs import EngineHooks, PluginInfo, Provider, hookimpl
from hookspecs.contracts.executor import Executor


class UniprocPlugin(EngineHooks):
    """One worker, in the engine core's process."""

    PLUGIN = PluginInfo(
        name="executor-uniproc",
        api=">=1.0,<2",
        description="One worker in the engine core's own process",
    )

    @hookimpl
    def register_executors(self) -> Iterable[Provider[Executor]]:
        yield Provider(
            "uniproc",
            "builtin_plugins.executor_uniproc.executor:UniprocExecutor",
            description="One worker in the engine core's own process; calls it directly.",
        )


plugin = UniprocPlugin()
