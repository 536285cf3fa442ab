"""What the dashboard shows, as data."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import msgspec
from hookspecs.contracts.frontend import EngineClient
from hookspecs.errors import FrameworkError
from hookspecs.types.control import EngineHealth

from queue_dashboard.finished import finished_by_reason

__all__ = ["PluginLine", "Status", "read_status"]

COMMAND_S: Final = 2.0
"""How long the page waits for engines that are stuck."""


class PluginLine(msgspec.Struct, frozen=True, kw_only=True):
    """One plugin."""

    name: str
    state: str
    calls: int
    """Of its hooks, in all processes."""
    errors: int
    error: str | None
    """Why it is broken or disabled."""


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `status.json`."""

    model: str
    version: str
    """Of the distribution."""
    api_version: str
    """Of the plugin contract."""
    started_at: int
    """Seconds since 1970, UTC."""
    health: EngineHealth
    engines: list[dict[str, Any]]
    """EngineStatus of each; empty when they did not answer."""
    engines_error: str | None
    """Why they did not."""
    finished: dict[str, int] | None
    """Finish reason to outputs that ended so; None when no stat logger counts them."""
    plugins: list[PluginLine]


async def read_status(engine: EngineClient) -> Status:
    """Answers also when the engines are stuck or dead: then most of all it is asked for."""
    engines, engines_error = await _engines(engine)
    info = engine.info
    return Status(
        model=info.model,
        version=info.version,
        api_version=info.api_version,
        started_at=info.started_at,
        health=engine.health(),
        engines=engines,
        engines_error=engines_error,
        finished=finished_by_reason(engine.expositions()),
        plugins=[_plugin_line(plugin) for plugin in engine.plugins()],
    )


async def _engines(engine: EngineClient) -> tuple[list[dict[str, Any]], str | None]:
    try:
        async with asyncio.timeout(COMMAND_S):
            result = await engine.command("get_status", {})
    except TimeoutError:
        return [], f"no answer within {COMMAND_S:g} s"
    except FrameworkError as error:
        return [], str(error)
    # Several engines answer with a list.
    return (result if isinstance(result, list) else [result]), None


def _plugin_line(plugin: dict[str, Any]) -> PluginLine:
    return PluginLine(
        name=plugin["name"],
        state=plugin["state"],
        calls=sum(plugin["calls"].values()),
        errors=sum(plugin["errors"].values()),
        error=plugin["error"],
    )
