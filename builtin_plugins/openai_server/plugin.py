"""Registers the front end `openai`."""

from __future__ import annotations

from collections.abc import Iterable

from builtin_plugins.openai_server.options import OpenAIOptions
from hookspecs import EngineHooks, PluginInfo, ProcessRole, Provider, hookimpl
from hookspecs.contracts.frontend import Frontend


class OpenAIServerPlugin(EngineHooks):
    """HTTP server with the endpoints of the OpenAI API."""

    PLUGIN = PluginInfo(
        name="openai-server",
        api=">=1.0,<2",
        description="HTTP server with the endpoints of the OpenAI API",
        roles=frozenset({ProcessRole.LAUNCHER, ProcessRole.FRONTEND}),
    )

    @hookimpl
    def register_frontends(self) -> Iterable[Provider[Frontend]]:
        yield Provider(
            "openai",
            "builtin_plugins.openai_server.server:OpenAIServer",
            options=OpenAIOptions,
            description="OpenAI-compatible HTTP server, with Anthropic's Messages besides.",
            extra="serve",
        )


plugin = OpenAIServerPlugin()
