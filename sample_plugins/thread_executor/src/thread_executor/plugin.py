"""The entry point. Imported in several processes, so it stays light: the executor is named as a
string and imported only where it is used."""

from __future__ import annotations

from collections.abc import Iterable

from hookspecs import EngineHooks, PluginInfo, ProcessRole, Provider, hookimpl
from hookspecs.contracts.executor import Executor

__all__ = ["ThreadsPlugin", "plugin"]


class ThreadsPlugin(EngineHooks):
    """Offers one executor."""

    PLUGIN = PluginInfo(
        name="threads",
        api=">=1.0,<2",
        description="Executor: one worker, in a thread of its own",
        roles=frozenset({ProcessRole.LAUNCHER, ProcessRole.CORE}),
    )

    @hookimpl
    def register_executors(self) -> Iterable[Provider[Executor]]:
        """Offer the executor `threads`."""
        yield Provider(
            "threads",
            "thread_executor.executor:ThreadExecutor",
            description="One worker in a thread of its own; calls return futures at once.",
        )


plugin = ThreadsPlugin()
