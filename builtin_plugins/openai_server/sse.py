"""Answers as server-sent events (WHATWG HTML, "Server-sent events").

Front-end process, its event loop. The answer starts with the first event, so that a request that
fails early gets an ordinary error; or, where that takes long, with a comment. What fails later is
one error event.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from functools import partial
from typing import Final, TypeAlias

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from builtin_plugins.openai_server.body import disconnected
from builtin_plugins.openai_server.errors import ApiError, as_api_error
from builtin_plugins.openai_server.failures import as_exception
from builtin_plugins.openai_server.time_limit import TimeLimit
from hookspecs.errors import FrameworkError

__all__ = ["DONE", "Event", "EventStream", "encode_event"]

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


def _never(body: bytes) -> bool:
    """Stands for a server that can only be sent ASGI messages."""
    return False


def _error_event(error: ApiError) -> Event:
    return error.body


class EventStream(Response):
    """An answer of events. Sending waits for a slow reader, and then no events are taken.

    What `events` raises before the answer has started is raised by the call; what it raises later,
    and the end of the time limit, is sent as `error_event`. `last` is sent at the end, also after
    an error. The generator is closed when it has ended, when the client goes away, and when the
    call is cancelled.
    """

    media_type = "text/event-stream"

    def __init__(
        self,
        events: AsyncGenerator[Event, None],
        limit: TimeLimit,
        *,
        error_event: Callable[[ApiError], Event] = _error_event,
        last: bytes = DONE,
        keep_alive_s: float = KEEP_ALIVE_S,
    ) -> None:
        self.status_code = 200
        self.background = None
        self.init_headers(HEADERS)
        self._events = events
        self._limit = limit
        self._error_event = error_event
        self._last = last
        self._keep_alive_s = keep_alive_s
        self._lock = asyncio.Lock()
        self._sent_at = 0.0
        self._started = False
        self._early_failure: Exception | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI: sends everything, or stops when the client goes away."""
        self._sent_at = time.monotonic()
        write = scope.get("state", {}).get("write", _never)
        sending = asyncio.create_task(self._send_all(send, write))
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
        if self._early_failure is not None:
            raise self._early_failure

    async def _send_all(self, send: Send, write: Callable[[bytes], bool]) -> None:
        """`write`: sends a body at once, or returns False; see `protocol.py`."""
        take: Callable[[], Awaitable[Event]] = self._events.__anext__
        if self._limit.at is not None:
            take = partial(self._limit.within, take)
        failure: Exception | None = None
        while True:
            try:
                event = await take()
            except StopAsyncIteration:
                break
            except BaseException as error:
                failure = as_exception(error)
                break
            body = event if isinstance(event, bytes) else encode_event(event)
            if self._started and write(body):
                self._sent_at = time.monotonic()
                continue
            async with self._lock:
                await self._send_part(send, body)
        async with self._lock:
            if failure is not None and not self._started:
                self._early_failure = failure
                return
            end = b"" if failure is None else self._encode_error(failure)
            await self._send_part(send, end + self._last, more=False)

    async def _send_part(self, send: Send, body: bytes, *, more: bool = True) -> None:
        """With the lock held."""
        if not self._started:
            self._started = True
            start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
            await send(start)
        await send({"type": "http.response.body", "body": body, "more_body": more})
        self._sent_at = time.monotonic()

    def _encode_error(self, error: Exception) -> bytes:
        if not isinstance(error, (ApiError, FrameworkError)):
            logger.error("a stream failed after its start", exc_info=error)
        return encode_event(self._error_event(as_api_error(error)))

    async def _watch(self, receive: Receive, send: Send) -> None:
        """Returns when the client has gone; until then sends comments while nothing comes."""
        gone = asyncio.create_task(disconnected(receive))
        try:
            while not gone.done():
                # While an event waits for a slow reader, the connection is in use.
                idle = 0.0 if self._lock.locked() else time.monotonic() - self._sent_at
                if idle >= self._keep_alive_s:
                    async with self._lock:
                        await self._send_part(send, KEEP_ALIVE)
                    idle = 0.0
                await asyncio.wait((gone,), timeout=self._keep_alive_s - idle)
            gone.result()
        finally:
            gone.cancel()
