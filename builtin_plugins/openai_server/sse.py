"""Answers as server-sent events (WHATWG HTML, "Server-sent events").

Front-end process, its event loop. The first event is awaited before the answer starts, so that a
request that fails early gets an ordinary error; one that fails later gets one error event.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any, Final, TypeAlias

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from builtin_plugins.openai_server.errors import ApiError, as_api_error
from hookspecs.errors import FrameworkError

__all__ = ["DONE", "Event", "EventStream", "encode_event", "event_stream"]

Event: TypeAlias = msgspec.Struct | tuple[str, msgspec.Struct] | bytes
"""The data of an event; its name and data; or events that are encoded already."""

DONE: Final = b"data: [DONE]\n\n"
"""Last event of a stream of OpenAI."""
KEEP_ALIVE: Final = b": keep-alive\n\n"
"""A comment, which clients skip."""
KEEP_ALIVE_S: Final = 15.0
"""Seconds without an event until a comment is sent, so that no proxy cuts the connection."""
HEADERS: Final = {"cache-control": "no-cache", "x-accel-buffering": "no"}

logger = logging.getLogger(__name__)

_encode = msgspec.json.Encoder().encode


def encode_event(event: Event) -> bytes:
    """The bytes of one event."""
    if isinstance(event, bytes):
        return event
    if isinstance(event, tuple):
        return b"event: %b\ndata: %b\n\n" % (event[0].encode(), _encode(event[1]))
    return b"data: %b\n\n" % _encode(event)


def _error_event(error: ApiError) -> Event:
    return error.body


async def event_stream(
    events: AsyncGenerator[Event, None],
    *,
    error_event: Callable[[ApiError], Event] = _error_event,
    last: bytes = DONE,
    headers: Mapping[str, str] | None = None,
    keep_alive_s: float = KEEP_ALIVE_S,
) -> EventStream:
    """The answer that sends `events`, after the first of them has come.

    What `events` raises before that is raised here. What it raises later is sent as
    `error_event`. `last` is sent at the end, also after an error. The generator is closed when it
    has ended, when the client goes away, and when this is cancelled.
    """
    try:
        first = await anext(events)
    except StopAsyncIteration:
        first = b""
    except BaseException:
        await events.aclose()
        raise
    return EventStream(
        first,
        events,
        error_event=error_event,
        last=last,
        headers=headers,
        keep_alive_s=keep_alive_s,
    )


class EventStream(Response):
    """An answer of events. Sending waits for a slow reader, and then no events are taken."""

    media_type = "text/event-stream"

    def __init__(
        self,
        first: Event,
        events: AsyncGenerator[Event, None],
        *,
        error_event: Callable[[ApiError], Event],
        last: bytes,
        headers: Mapping[str, str] | None,
        keep_alive_s: float,
    ) -> None:
        self.status_code = 200
        self.background = None
        self.init_headers({**HEADERS, **(headers or {})})
        self._first = first
        self._events = events
        self._error_event = error_event
        self._last = last
        self._keep_alive_s = keep_alive_s
        self._lock = asyncio.Lock()
        self._sent_at = 0.0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI: sends everything, or stops when the client goes away."""
        self._sent_at = asyncio.get_running_loop().time()
        sending = asyncio.create_task(self._send_all(send))
        watching = asyncio.create_task(self._watch(receive, send))
        try:
            await asyncio.wait((sending, watching), return_when=asyncio.FIRST_COMPLETED)
        finally:
            sending.cancel()
            watching.cancel()
            results = await asyncio.gather(sending, watching, return_exceptions=True)
            await self._events.aclose()
        for result in results:
            if isinstance(result, OSError):
                logger.debug("the client went away: %s", result)
            elif isinstance(result, Exception):
                raise result

    async def _send_all(self, send: Send) -> None:
        clock = asyncio.get_running_loop().time
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        async with self._lock:
            await send(start)
            if self._first:
                await send(_part(encode_event(self._first)))
        while True:
            try:
                event = await anext(self._events)
            except StopAsyncIteration:
                end = self._last
                break
            except Exception as error:
                end = self._encode_error(error) + self._last
                break
            body = event if isinstance(event, bytes) else encode_event(event)
            async with self._lock:
                await send(_part(body))
                self._sent_at = clock()
        async with self._lock:
            await send({"type": "http.response.body", "body": end})
            self._sent_at = clock()

    def _encode_error(self, error: Exception) -> bytes:
        if not isinstance(error, (ApiError, FrameworkError)):
            logger.error("a stream failed after its first event", exc_info=error)
        return encode_event(self._error_event(as_api_error(error)))

    async def _watch(self, receive: Receive, send: Send) -> None:
        """Returns when the client has gone; until then sends comments while nothing comes."""
        clock = asyncio.get_running_loop().time
        gone = asyncio.create_task(_disconnected(receive))
        try:
            while not gone.done():
                # While an event waits for a slow reader, the connection is in use.
                idle = 0.0 if self._lock.locked() else clock() - self._sent_at
                if idle >= self._keep_alive_s:
                    async with self._lock:
                        await send(_part(KEEP_ALIVE))
                        self._sent_at = clock()
                    idle = 0.0
                await asyncio.wait((gone,), timeout=self._keep_alive_s - idle)
            gone.result()
        finally:
            gone.cancel()


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _part(body: bytes) -> dict[str, Any]:
    return {"type": "http.response.body", "body": body, "more_body": True}
