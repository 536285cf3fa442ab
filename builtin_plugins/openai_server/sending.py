"""The sending side of one request: knows how far its answer is, so that it can still fail well."""

from __future__ import annotations

import logging

import msgspec
from starlette.datastructures import Headers
from starlette.types import Message, Send

from builtin_plugins.openai_server.answers import error_answer
from builtin_plugins.openai_server.endpoint import ErrorForm, openai_error
from builtin_plugins.openai_server.errors import ApiError

__all__ = ["Sending"]

logger = logging.getLogger("framework.openai")


class Sending:
    """An ASGI `send`."""

    def __init__(self, send: Send, *, head: bool) -> None:
        self.error_body: ErrorForm = openai_error
        self._send = send
        self._head = head
        self._started = self._complete = self._events = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._started = True
            kind = Headers(raw=message.get("headers", [])).get("content-type", "")
            self._events = kind.startswith("text/event-stream")
        elif message["type"] == "http.response.body":
            self._complete = not message.get("more_body", False)
            if self._head:
                # The headers are those of GET, the body is not sent (RFC 9110, section 9.3.2).
                message = {**message, "body": b""}
        await self._send(message)

    async def fail(self, error: ApiError, request_id: str) -> None:
        """Tell the client as well as what was sent already allows."""
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
