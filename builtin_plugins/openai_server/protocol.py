"""HTTP/1.1 connections with what uvicorn's have not: bounds on a request's line and headers,
requests that ask for another protocol, answers to what is no request.

Event loop of the front end.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any, ClassVar
from weakref import ref

import httptools
import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from builtin_plugins.openai_server.errors import ErrorBody, ErrorDetail
from builtin_plugins.openai_server.limits import HEAD_BYTES, HEADERS
from builtin_plugins.openai_server.writes import BatchedTransport, Writes

__all__ = ["BoundedProtocol"]


class _Refused(Exception):
    """Ends the parsing, and the connection."""

    def __init__(self, status: str, code: str, message: str) -> None:
        super().__init__(message)
        detail = ErrorDetail(message=message, type="invalid_request_error", code=code)
        body = msgspec.json.encode(ErrorBody(error=detail))
        self.answer = (
            b"HTTP/1.1 %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\n"
            b"connection: close\r\n\r\n%b" % (status.encode(), len(body), body)
        )


def _too_large() -> _Refused:
    message = (
        f"the request's line and headers have more than {HEAD_BYTES.value} bytes or "
        f"{HEADERS.value} headers"
    )
    return _Refused("431 Request Header Fields Too Large", "head_too_large", message)


class BoundedProtocol(HttpToolsProtocol):
    """One connection. A head that is too large is answered 431, one that is no HTTP 400, as JSON,
    after the answers of the requests before it; one that takes too long to arrive ends the
    connection. `Upgrade` is ignored, as RFC 9110, section 7.8, allows."""

    writes: ClassVar[Writes]
    """Of all connections of one event loop."""
    head_timeout_s: ClassVar[float] = 60.0
    """Also the time in which a new connection must begin to send."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._head_bytes = self._num_headers = 0
        self._in_head = True
        self._asks_upgrade = False
        """The parser ends with the head that it is in, and takes no body."""
        self._refused: _Refused | None = None
        self._unanswered = 0
        self._last: bytes | None = None
        """Ends the connection behind the answers that are still to come; nothing more is read."""
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(BatchedTransport(transport, self.writes))
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        # A header without end reaches no callback, so what is fed is counted: never more at once
        # than a head may have. Of a head that begins behind another request's body in the same
        # piece, that piece is not counted.
        self._unset_keepalive_if_required()
        while data and self._in_head and self._reads:
            room = HEAD_BYTES.value - self._head_bytes
            piece, data = data[:room], data[room:]
            self._head_bytes += len(piece)
            self._feed(piece)
            if self._in_head and self._head_bytes == HEAD_BYTES.value and self._reads:
                self._refuse(_too_large())
        if data and self._reads:
            self._feed(data)

    @property
    def _reads(self) -> bool:
        return self._last is None and not self.transport.is_closing()

    def _feed(self, data: bytes) -> None:
        rest = memoryview(data)
        try:
            while rest and self._reads:
                try:
                    self.parser.feed_data(rest)
                    return
                except httptools.HttpParserUpgrade as upgrade:
                    rest = rest[upgrade.args[0] :]
                    self._without_upgrade()
        except httptools.HttpParserError:
            refused, self._refused = self._refused, None
            self._refuse(
                refused or _Refused("400 Bad Request", "invalid_http", "this is not HTTP/1.1")
            )

    def _without_upgrade(self) -> None:
        """Go on behind the head just parsed with a parser that was not asked to upgrade: the old
        one would take the body for the next request."""
        self._asks_upgrade = False
        version = self.parser.get_http_version().encode()
        lines = [b"%b %b HTTP/%b" % (self.parser.get_method(), self.url, version)]
        lines += [b"%b: %b" % header for header in self.headers if header[0] != b"upgrade"]
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn's
        self.parser.feed_data(b"\r\n".join(lines) + b"\r\n\r\n")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["state"]["abort"] = self.transport.abort
        self._in_head = True
        self._num_headers = 0
        if self._timer is None:
            self._await_head()

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value)
        self._num_headers += 1
        if self._num_headers > HEADERS.value:
            self._refused = _too_large()
            raise self._refused

    def on_headers_complete(self) -> None:
        if self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT":
            self._asks_upgrade = True
            return
        self._stop_timer()
        self._in_head = False
        self._head_bytes = 0
        self._refused = _unsupported(self.headers)
        if self._refused is not None:
            raise self._refused
        super().on_headers_complete()
        # Weak: the cycle has the scope, and is to go with its request, not when the collector runs.
        self.scope["state"]["write"] = partial(_write, ref(self.cycle))
        self._unanswered += 1

    def on_message_complete(self) -> None:
        if not self._asks_upgrade:
            super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._unanswered -= 1
        if self._last is not None and not self._unanswered:
            self._end(self._last)

    def _refuse(self, refused: _Refused) -> None:
        """Answer what can not be parsed, in its turn."""
        cycle = self.cycle
        if cycle is None or not cycle.more_body or cycle.response_complete:
            self._end_in_turn(refused.answer)  # it is behind a whole request
        elif self.pipeline:  # it is the body of the last request, which then waits here
            self.pipeline.popleft()
            self._unanswered -= 1
            self._end_in_turn(refused.answer)
        else:
            self._end(b"" if cycle.response_started else refused.answer)

    def _end_in_turn(self, last: bytes) -> None:
        if self._unanswered:
            self._last = last
        else:
            self._end(last)

    def _end(self, last: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(last)
            self.transport.close()

    def _await_head(self) -> None:
        self._timer = self.loop.call_later(self.head_timeout_s, self._give_up)

    def _give_up(self) -> None:
        self._timer = None
        if self._in_head and self._reads:
            self._end_in_turn(b"")

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _write(answering: ref[RequestResponseCycle], body: bytes) -> bool:
    """Send a piece of the body of a chunked answer that has begun (RFC 9112, section 7.1), as the
    ASGI message would, which costs several times as much. False, and nothing is sent, when that
    can not be done at once: only the message can wait for a client that does not read."""
    cycle = answering()
    if (
        cycle is None
        or not (body and cycle.chunked_encoding)
        or cycle.response_complete
        or cycle.disconnected
        or cycle.flow.write_paused
    ):
        return False
    cycle.transport.write(b"%x\r\n%b\r\n" % (len(body), body))
    return True


def _unsupported(headers: list[tuple[bytes, bytes]]) -> _Refused | None:
    """What a head asks of the server that it does not do (RFC 9112, section 6.1; RFC 9110, section
    10.1.1)."""
    codings = b", ".join(value for name, value in headers if name == b"transfer-encoding")
    if codings and codings.lower() != b"chunked":
        message = (
            f"transfer-encoding {str(codings[:50])[1:]} is not supported; send chunked, or a length"
        )
        return _Refused("501 Not Implemented", "unsupported_transfer_encoding", message)
    expected = b", ".join(value for name, value in headers if name == b"expect")
    if expected and expected.lower() != b"100-continue":
        message = f"the expectation {str(expected[:50])[1:]} is not supported; 100-continue is"
        return _Refused("417 Expectation Failed", "unsupported_expectation", message)
    return None
