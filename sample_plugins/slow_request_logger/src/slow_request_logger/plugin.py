"""The entry point. Imported in several processes, so it stays light: the stat logger itself is
named as a string and imported only where it is used."""

from __future__ import annotations

from collections.abc import Iterable

from hookspecs import EngineHooks, PluginInfo, ProcessRole, Provider, hookimpl
from hookspecs.contracts.stats import StatLogger

from slow_request_logger.options import SlowRequestOptions

__all__ = ["SlowRequestLoggerPlugin", "plugin"]


class SlowRequestLoggerPlugin(EngineHooks):
    """Offers one stat logger."""

    PLUGIN = PluginInfo(
        name="slow-request-logger",
        api=">=1.0,<2",
        description="Stat logger: names the requests that were too slow",
        roles=frozenset({ProcessRole.LAUNCHER, ProcessRole.FRONTEND}),
    )

    @hookimpl
    def register_stat_loggers(self) -> Iterable[Provider[StatLogger]]:
        """Offer the stat logger `slow-requests`."""
        yield Provider(
            "slow-requests",
            "slow_request_logger.stat_logger:SlowRequestLogger",
            options=SlowRequestOptions,
            description="Logs finished requests that exceed a limit, with tenant and labels.",
        )


plugin = SlowRequestLoggerPlugin()
