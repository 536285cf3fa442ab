"""`/version` and `/plugins`: what runs here."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.responses import Response

from builtin_plugins.openai_server.answers import json_answer
from builtin_plugins.openai_server.endpoint import Call, Endpoint

__all__ = ["ENDPOINTS"]


class VersionAnswer(msgspec.Struct, kw_only=True):
    """Answer of `GET /version`."""

    version: str
    """Of the distribution."""
    api_version: str
    """Of the plugin contract."""


class PluginsAnswer(msgspec.Struct, kw_only=True):
    """Answer of `GET /plugins`."""

    plugins: list[dict[str, Any]]
    """State, providers, calls and errors of each."""


async def version(call: Call[None]) -> Response:
    """GET /version"""
    info = call.service.engine.info
    return json_answer(VersionAnswer(version=info.version, api_version=info.api_version))


async def plugins(call: Call[None]) -> Response:
    """GET /plugins"""
    return json_answer(PluginsAnswer(plugins=call.service.engine.plugins()))


ENDPOINTS = (
    Endpoint("GET", "/version", version, "Versions", answer=VersionAnswer),
    Endpoint("GET", "/plugins", plugins, "Plugins and their state", answer=PluginsAnswer),
)
