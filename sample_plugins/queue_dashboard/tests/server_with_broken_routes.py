"""A server with a second plugin, whose routes raise. Run by `test_end_to_end.py`."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

import framework
from hookspecs import EngineHooks, PluginInfo, ProcessRole, Provider, hookimpl
from hookspecs.contracts.frontend import HttpRoutes


class Broken(HttpRoutes):
    """Raises in every request."""

    def asgi(self) -> Any:
        return self._app

    async def _app(self, scope: Any, receive: Any, send: Any) -> None:
        raise ZeroDivisionError("in a route")


class BrokenPlugin(EngineHooks):
    """A local object, so its routes take part without `plugins.enable`."""

    # The process of the engine core does not import it, which it could not: it is in `__main__`.
    PLUGIN = PluginInfo(
        name="broken-routes", api=">=1.0,<2", roles=frozenset({ProcessRole.FRONTEND})
    )

    @hookimpl
    def register_http_routes(self) -> Iterable[Provider[HttpRoutes]]:
        yield Provider("broken-routes", f"{__name__}:Broken")


if __name__ == "__main__":
    config = {
        "model": {"name": "scripted"},
        "executor": {"worker": "scripted"},
        "serving": {"port": 0},
    }
    sys.exit(
        framework.serve(
            config,
            plugins=[BrokenPlugin()],
            serving=lambda address, _: print(f"serving at {address} now", flush=True),
        )
    )
