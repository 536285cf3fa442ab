"""The client of a run: connections that are kept, and requests as bytes."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from framework.bench.answer import MOST_BYTES
from framework.bench.connection import Connection, Receiver, UnansweredError
from hookspecs.errors import ConfigError, TransportError

__all__ = ["Client"]

_PORTS: Final = {"http": 80, "https": 443}


class Client:
    """Requests to one server. Event loop's thread."""

    def __init__(self, url: str, api_key: str | None, timeout_s: float) -> None:
        """`url`: as `http://HOST:PORT`, with the part before `/v1` of the path, if any.
        `timeout_s`: how long to wait for a connection, and for the next byte of an answer.
        ConfigError for another form of URL."""
        parts = urlsplit(url)
        try:
            port = parts.port
        except ValueError as error:
            raise ConfigError(f"--url is {url!r}: {error}") from error
        if parts.scheme not in _PORTS or not parts.hostname or parts.query or parts.fragment:
            raise ConfigError(f"--url is {url!r}; it must be http://HOST:PORT or https://HOST:PORT")
        self.url = url
        self._host = parts.hostname
        self._port = port or _PORTS[parts.scheme]
        self._timeout_s = timeout_s
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None
        self._prefix = parts.path.rstrip("/").removesuffix("/v1")
        headers = {"host": parts.netloc.rpartition("@")[2], "accept-encoding": "identity"}
        if api_key is not None:
            if not (api_key.isascii() and api_key.isprintable()):
                raise ConfigError("--api-key has characters that a header can not have")
            headers["authorization"] = f"Bearer {api_key}"
        self._headers = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        self._idle: list[Connection] = []

    def post(self, path: str, body: Any) -> bytes:
        """The bytes of a request. `path`: from `/v1` on."""
        data = msgspec.json.encode(body)
        more = f"content-type: application/json\r\ncontent-length: {len(data)}\r\n"
        return self._head("POST", path, more) + data

    async def get(self, path: str) -> bytes:
        """The body of an answer. TransportError when there is none, not all of it before the
        timeout, or another status than 200."""
        answer = _Whole()
        try:
            async with self._in_time(f"no whole answer to {path}"):
                await self.exchange(self._head("GET", path, ""), answer)
        except OSError as error:
            raise TransportError(
                f"no answer from {self.url}: {error}. Start the server, or give its --url"
            ) from error
        if answer.status != 200:
            raise TransportError(
                f"{self.url} answers {answer.status} to {path}: is it the --url of an "
                "OpenAI-compatible server, and is an --api-key needed?"
            )
        return bytes(answer.data)

    async def exchange(self, request: bytes, receiver: Receiver) -> None:
        """Send a request and receive its answer. OSError when there is none, or a part only."""
        await self.exchange_over(await self.connection(), request, receiver)

    async def exchange_over(
        self, connection: Connection, request: bytes, receiver: Receiver
    ) -> None:
        """`exchange` over a connection of `connection`, which is given back. ConnectionError,
        TimeoutError.

        A server may close an idle connection just when it is used again: then the request goes
        over a new one (RFC 9112, 9.3.1)."""
        kept = connection.used
        try:
            await connection.exchange(request, receiver)
        except UnansweredError:
            if not kept:
                raise
            self.close()  # the other idle ones are as old
            connection = await self.connection()
            await connection.exchange(request, receiver)
        finally:
            self.give_back(connection)

    async def connection(self) -> Connection:
        """One that is idle, or a new one. OSError."""
        while self._idle:
            connection = self._idle.pop()
            if connection.reusable:
                return connection
        loop = asyncio.get_running_loop()
        async with self._in_time("no connection"):
            _, connection = await loop.create_connection(
                lambda: Connection(self._timeout_s), self._host, self._port, ssl=self._tls
            )
        return connection

    def give_back(self, connection: Connection) -> None:
        """After an exchange."""
        if connection.reusable:
            self._idle.append(connection)

    def close(self) -> None:
        """Close the idle connections."""
        for connection in self._idle:
            connection.close()
        self._idle.clear()

    @contextlib.asynccontextmanager
    async def _in_time(self, lacking: str) -> AsyncIterator[None]:
        """TimeoutError that says what is lacking when it takes longer than the timeout."""
        limit = asyncio.timeout(self._timeout_s)
        try:
            async with limit:
                yield
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise TimeoutError(f"{lacking} in {self._timeout_s:g} s (--timeout)") from error

    def _head(self, method: str, path: str, more: str) -> bytes:
        return f"{method} {self._prefix}{path} HTTP/1.1\r\n{self._headers}{more}\r\n".encode()


class _Whole:
    """An answer that is kept."""

    def __init__(self) -> None:
        self.status = 0
        self.data = bytearray()

    def head(self, status: int, content_type: str) -> None:
        self.status = status

    def body(self, data: bytes) -> None:
        self.data += data
        if len(self.data) > MOST_BYTES:
            raise ConnectionError(f"the answer has more than {MOST_BYTES} bytes")
