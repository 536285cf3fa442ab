"""The sending side of one request: knows how far its answer is, so that it can still fail well."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

import msgspec
from starlette.datastructures import Headers
from starlette.types import Message, Scope, Send

from builtin_plugins.openai_server.answers import error_answer
from builtin_plugins.openai_server.asgi import check_start
from builtin_plugins.openai_server.endpoint import ErrorForm, openai_error
from builtin_plugins.openai_server.errors import ApiError
from builtin_plugins.openai_server.routing import Routes

__all__ = ["GRACE_S", "Sending", "refuse"]

GRACE_S: Final = 5.0
"""Seconds that a client gets to read what ends its answer early."""

logger = logging.getLogger("framework.openai")


class Sending:
    """An ASGI `send`."""

    def __init__(self, scope: Scope, send: Send) -> None:
        """`scope`: its state may hold `abort`, which closes the connection at once."""
        self.error_body: ErrorForm = openai_error
        self._send = send
        self._head = scope["method"] == "HEAD"
        self._abort = scope["state"].get("abort")
        self._started = self._complete = self._events = False

    @property
    def started(self) -> bool:
        """Whether the status and headers were sent."""
        return self._started

    async def __call__(self, message: Message) -> None:
        """ValueError for what is no ASGI message, or not the next one: nothing of it is sent, so
        that the answer can still be an error."""
        start = message["type"] == "http.response.start"
        if start:
            message = {**message, "headers": list(message.get("headers", []))}
        self._check(message)
        if self._head and not start:
            # The headers are those of GET, the body is not sent (RFC 9110, section 9.3.2).
            message = {**message, "body": b""}
        await self._send(message)
        if start:
            self._started = True
            kind = Headers(raw=message["headers"]).get("content-type", "")
            self._events = kind.startswith("text/event-stream")
        else:
            self._complete = not message.get("more_body", False)

    def _check(self, message: Message) -> None:
        kind = message["type"]
        expected = "http.response.body" if self._started else "http.response.start"
        if self._complete or kind != expected:
            due = "nothing more" if self._complete else expected
            raise ValueError(f"the ASGI message {kind!r} was sent where {due} is due")
        if kind == "http.response.start":
            check_start(message)
        elif not isinstance(message.get("body", b""), (bytes, bytearray, memoryview)):
            raise ValueError(
                f"the body of an answer is {type(message['body']).__name__}, not bytes"
            )

    async def fail(self, error: ApiError, request_id: str) -> None:
        """Tell the client as well as what was sent already allows. One that does not read for
        GRACE_S is cut off."""
        try:
            async with asyncio.timeout(GRACE_S) as timeout:
                await self._fail(error, request_id)
        except TimeoutError:
            if not timeout.expired():
                raise
            await self.cut_off()

    async def cut_off(self) -> None:
        """Close the connection with what is not sent yet."""
        if self._abort is not None:
            self._abort()
            await asyncio.sleep(0)  # the server learns of it

    async def _fail(self, error: ApiError, request_id: str) -> None:
        body = self.error_body(error, request_id)
        if not self._started:
            answer = error_answer(error, body)
            for message in (
                {
                    "type": "http.response.start",
                    "status": answer.status_code,
                    "headers": answer.raw_headers,
                },
                {"type": "http.response.body", "body": answer.body},
            ):
                await self(message)
        elif self._events and not self._complete:
            data = b"event: error\ndata: %b\n\n" % msgspec.json.encode(body)
            await self({"type": "http.response.body", "body": data})
        elif not self._complete:
            # The server closes the connection of an answer that is left incomplete.
            logger.warning("request %s: the answer was cut off: %s", request_id, error)


async def refuse(error: ApiError, routes: Routes, scope: Scope, send: Send) -> None:
    """Answer a request with an error, in the form of its path."""
    sending = Sending(scope, send)
    sending.error_body = routes.error_body(scope["path"])
    await sending.fail(error, scope["state"]["request_id"])
