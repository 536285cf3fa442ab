"""`OpenAIServer`: the front end's life in its process. The kernel's event loop, one thread."""

from __future__ import annotations

import asyncio
import os
import socket

import uvicorn

from builtin_plugins.openai_server.app import build_app
from builtin_plugins.openai_server.options import OpenAIOptions
from builtin_plugins.openai_server.protocol import BoundedProtocol
from builtin_plugins.openai_server.writes import Writes
from hookspecs.contracts.frontend import Frontend, FrontendContext

__all__ = ["OpenAIServer"]

CLOSE_S = 2.0
"""Seconds that open answers get to end, once the server stops."""
DATE_S = 1.0
"""Seconds between updates of the `date` header."""


class OpenAIServer(Frontend):
    """Serves on the inherited socket, of which it takes a duplicate."""

    def __init__(self, context: FrontendContext) -> None:
        super().__init__(context)
        options: OpenAIOptions = context.options
        serving = context.config.serving

        class Protocol(BoundedProtocol):
            writes = Writes()
            head_timeout_s = options.body_timeout_s

        self._config = uvicorn.Config(
            build_app(context, options),
            http=Protocol,
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="error",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=options.keep_alive_s,
            ssl_certfile=serving.tls_certificate,
            ssl_keyfile=serving.tls_key,
        )
        self._config.load()

    async def serve(self) -> None:
        """Until cancelled; then as `_Server.shutdown`."""
        listener = socket.socket(fileno=os.dup(self.context.listen_fd))
        await _Server(self._config).serve(sockets=[listener])


class _Server(uvicorn.Server):
    """uvicorn's server, stopped by cancelling it instead of by signals."""

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        self.lifespan = self.config.lifespan_class(self.config)
        await self.startup(sockets=sockets)
        try:
            while not await self.on_tick(0):
                await asyncio.sleep(DATE_S)
        finally:
            await self.shutdown(sockets=sockets)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Take no more connections, close idle ones, give open answers a moment, then cut them
        off: their handlers see that the client has gone."""
        for server in self.servers:
            server.close()
        for listener in sockets or []:
            listener.close()
        state = self.server_state
        for connection in list(state.connections):
            connection.shutdown()
        await _wait(state.tasks)
        for connection in list(state.connections):
            if connection.transport is not None:
                connection.transport.abort()
        await _wait(state.tasks)
        for task in state.tasks:
            task.cancel()


async def _wait(tasks: set[asyncio.Task[None]]) -> None:
    if tasks:
        await asyncio.wait(set(tasks), timeout=CLOSE_S)
