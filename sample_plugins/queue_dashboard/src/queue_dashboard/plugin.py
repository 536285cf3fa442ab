"""The entry point. Imported in several processes, so it stays light: the routes themselves are
named as a string and imported only where they are used."""

from __future__ import annotations

from collections.abc import Iterable

from hookspecs import EngineHooks, PluginInfo, ProcessRole, Provider, hookimpl
from hookspecs.contracts.frontend import HttpRoutes

__all__ = ["QueueDashboardPlugin", "plugin"]


class QueueDashboardPlugin(EngineHooks):
    """Offers one application of HTTP routes."""

    PLUGIN = PluginInfo(
        name="queue-dashboard",
        api=">=1.0,<2",
        description="HTTP routes: a page that shows what the server does",
        roles=frozenset({ProcessRole.LAUNCHER, ProcessRole.FRONTEND}),
    )

    @hookimpl
    def register_http_routes(self) -> Iterable[Provider[HttpRoutes]]:
        """Offer the application; it is mounted by the plugin's name."""
        yield Provider(
            "queue-dashboard",
            "queue_dashboard.routes:QueueDashboard",
            description="A page, and the same as JSON, under /plugins/queue-dashboard/.",
        )


plugin = QueueDashboardPlugin()
