"""Requests that are answered before their body was read: their connection ends.

Else a client could hold it for ever by sending the body byte by byte, also one without a key.
"""

from __future__ import annotations

import asyncio
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["CloseUnread"]

LINGER_S: Final = 2.0
"""Seconds in which the rest of a body is still taken, and dropped, once the answer was sent. A
connection that is closed with bytes unread is reset, and then a client that is still sending may
never see its answer (RFC 9112, section 9.6)."""


class CloseUnread:
    """ASGI middleware, the outermost."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not _has_body(Headers(scope=scope)):
            await self._app(scope, receive, send)
            return
        body = _Body(receive)
        closing = False

        async def send_closing(message: Message) -> None:
            nonlocal closing
            if message["type"] == "http.response.start" and not body.at_end:
                closing = True
                message = {**message, "headers": list(message.get("headers", []))}
                MutableHeaders(scope=message)["connection"] = "close"
            elif closing and not message.get("more_body", False):
                await send({**message, "more_body": True})
                await body.drop_rest()
                message = {"type": "http.response.body"}
            await send(message)

        await self._app(scope, body.receive, send_closing)


class _Body:
    """The body of a request while it comes."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self.at_end = False
        """No more of it will come."""

    async def receive(self) -> Message:
        """ASGI."""
        message = await self._receive()
        if not message.get("more_body", False):
            self.at_end = True
        return message

    async def drop_rest(self) -> None:
        """Returns at its end, or after LINGER_S."""
        try:
            async with asyncio.timeout(LINGER_S) as timeout:
                while not self.at_end:
                    await self.receive()
        except TimeoutError:
            if not timeout.expired():
                raise


def _has_body(headers: Headers) -> bool:
    return "transfer-encoding" in headers or headers.get("content-length", "0") != "0"
