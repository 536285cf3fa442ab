"""HTTP/1.1 connections with bounds on a request's line and headers, which uvicorn has not."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from builtin_plugins.openai_server.errors import ErrorBody, ErrorDetail
from builtin_plugins.openai_server.limits import HEAD_BYTES, HEADERS

__all__ = ["BoundedProtocol"]


class _HeadTooLarge(Exception):
    """Ends the parsing of a request."""


class BoundedProtocol(HttpToolsProtocol):
    """One connection. A head that is too large is answered 431, one that is no HTTP 400, as JSON;
    one that takes too long to arrive ends the connection."""

    head_timeout_s: ClassVar[float] = 60.0
    """Also the time in which a new connection must begin to send."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._head_bytes = self._num_headers = 0
        self._in_head = True
        self._too_large = False
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        # A header without end reaches no callback, so what is fed is counted: never more at once
        # than a head may have. Of a head that begins behind another request's body in the same
        # piece, that piece is not counted.
        while data and self._in_head and not self.transport.is_closing():
            room = HEAD_BYTES.value - self._head_bytes
            piece, data = data[:room], data[room:]
            self._head_bytes += len(piece)
            super().data_received(piece)
            full = self._in_head and self._head_bytes == HEAD_BYTES.value
            if full and not self.transport.is_closing():
                self._too_large = True
                self.send_400_response("")
        if data and not self.transport.is_closing():
            super().data_received(data)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["state"]["abort"] = self.transport.abort
        self._in_head = True
        if self._timer is None:
            self._await_head()

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value)
        self._num_headers += 1
        if self._num_headers > HEADERS.value:
            self._too_large = True
            raise _HeadTooLarge

    def on_headers_complete(self) -> None:
        self._stop_timer()
        self._in_head = False
        self._head_bytes = self._num_headers = 0
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        """The base class calls this for everything that it can not parse."""
        if self._too_large:
            status, code = b"431 Request Header Fields Too Large", "head_too_large"
            message = (
                f"the request's line and headers have more than {HEAD_BYTES.value} bytes or "
                f"{HEADERS.value} headers"
            )
        else:
            status, code, message = b"400 Bad Request", "invalid_http", "this is not HTTP/1.1"
        detail = ErrorDetail(message=message, type="invalid_request_error", code=code)
        body = msgspec.json.encode(ErrorBody(error=detail))
        self.transport.write(
            b"HTTP/1.1 %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\n"
            b"connection: close\r\n\r\n%b" % (status, len(body), body)
        )
        self.transport.close()

    def _await_head(self) -> None:
        self._timer = self.loop.call_later(self.head_timeout_s, self._give_up)

    def _give_up(self) -> None:
        self._timer = None
        if self._in_head and not self.transport.is_closing():
            self.transport.close()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
