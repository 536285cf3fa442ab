"""HTTP/1.1 connections that hand over what they read at once, in the event loop's callback.

Parsed by httptools (llhttp). A general client costs too much here: from a server that sends chunks
one by one to 64 connections, this reads and decodes about 70 000 a second of CPU time, a client on
httpx about 13 000, so that on a small machine the generator would be what is measured.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol, cast

import httptools

__all__ = ["Connection", "Receiver", "UnansweredError"]

_HEAD: Final = 1 << 20
"""Bytes from which on an answer's head is given up; the parser itself keeps any number."""


class Receiver(Protocol):
    """Takes one answer, as it comes."""

    def head(self, status: int, content_type: str) -> None:
        """The answer begins."""

    def body(self, data: bytes) -> None:
        """A piece of the body, decoded from its transfer encoding."""


class UnansweredError(ConnectionError):
    """The connection was closed before an answer began."""


class Connection(asyncio.Protocol):
    """One connection, one exchange at a time. Event loop's thread."""

    def __init__(self, timeout_s: float) -> None:
        """`timeout_s`: how long an exchange waits for the next byte."""
        self._timeout_s = timeout_s
        self._loop = asyncio.get_running_loop()
        self._watch: asyncio.TimerHandle | None = None
        self._heard = 0.0
        """When something came, in the loop's time."""
        self._head_bytes = 0
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._receiver: Receiver | None = None
        self._done: asyncio.Future[None] | None = None
        self._content_type = ""
        self._in_body = False
        self._ends_at_close = True
        self.used = False
        """Whether an exchange was done over it."""

    @property
    def reusable(self) -> bool:
        """Whether another exchange may begin."""
        return self._done is None and self._transport is not None

    async def exchange(self, request: bytes, receiver: Receiver) -> None:
        """Send a request and receive its answer. ConnectionError when the answer is cut off or
        is no HTTP, TimeoutError when nothing more of it comes; then, and when this is cancelled,
        the connection is closed."""
        if self._transport is None or self._done is not None:
            raise UnansweredError("the connection was closed before the answer")
        self._done = self._loop.create_future()
        self._receiver = receiver
        self._heard = self._loop.time()
        self._head_bytes = 0
        self._watch_silence()
        try:
            self._transport.write(request)
            await self._done
            self.used = True
        except BaseException:
            self.close()
            raise
        finally:
            self._receiver = self._done = None
            if self._watch is not None:
                self._watch.cancel()

    def close(self) -> None:
        """Drops what was not sent yet, for a server that does not read may never take it. Safe to
        call twice."""
        if self._transport is not None:
            self._transport.abort()
            self._transport = None

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self._done is None:  # nothing was asked for
            self.close()
            return
        self._heard = self._loop.time()
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            cause = error.__context__
            if isinstance(error, httptools.HttpParserCallbackError) and cause is not None:
                self._fail(cause)
            else:
                self._fail(ConnectionError(f"the answer is no HTTP/1.1: {error}"))
            return
        if not self._in_body:
            self._head_bytes += len(data)
            if self._head_bytes > _HEAD:
                self._fail(ConnectionError(f"the head of the answer has more than {_HEAD} bytes"))

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._done is None:
            return
        if exc is None and self._in_body and self._ends_at_close:
            self.on_message_complete()
            return
        reason = f": {exc}" if exc is not None else ""
        if self._in_body:
            self._fail(ConnectionError(f"the connection was closed within the answer{reason}"))
        else:
            self._fail(UnansweredError(f"the connection was closed before the answer{reason}"))

    # The parser's callbacks

    def on_message_begin(self) -> None:
        self._content_type = ""
        self._ends_at_close = True
        self._in_body = False

    def on_header(self, name: bytes, value: bytes) -> None:
        lower = name.lower()
        if lower == b"content-type":
            self._content_type = value.decode("latin-1")
        elif lower in (b"content-length", b"transfer-encoding"):
            self._ends_at_close = False

    def on_headers_complete(self) -> None:
        self._in_body = True
        if self._receiver is not None:
            self._receiver.head(self._parser.get_status_code(), self._content_type)

    def on_body(self, data: bytes) -> None:
        if self._receiver is not None:
            self._receiver.body(data)

    def on_message_complete(self) -> None:
        self._in_body = False
        if self._done is not None and not self._done.done():
            self._done.set_result(None)
        if self._ends_at_close or not self._parser.should_keep_alive():
            self.close()

    def _watch_silence(self) -> None:
        """Look again when the time may be up: a timer for each piece that comes would cost more."""
        left = self._heard + self._timeout_s - self._loop.time()
        if left > 0:
            self._watch = self._loop.call_later(left, self._watch_silence)
        else:
            self._fail(TimeoutError(f"nothing came for {self._timeout_s:g} s (--timeout)"))

    def _fail(self, error: BaseException) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_exception(error)
        self.close()
