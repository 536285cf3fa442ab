"""How long an exchange waits; the loop's clock is the test's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from framework.bench.connection import Connection

HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n"


class Transport(asyncio.Transport):
    """Sends nothing."""

    aborted = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """To nobody."""

    def abort(self) -> None:
        self.aborted = True


class Body:
    """A receiver."""

    def __init__(self) -> None:
        self.data = b""

    def head(self, status: int, content_type: str) -> None:
        """Not looked at."""

    def body(self, data: bytes) -> None:
        self.data += data


Later = Callable[[float], Coroutine[Any, Any, None]]


def exchange(play: Callable[[Connection, Later], Coroutine[Any, Any, None]]) -> Body:
    """What an exchange that waits 10 seconds for each byte receives while `play` goes on."""
    now, body, transport = 0.0, Body(), Transport()

    async def later(seconds: float) -> None:
        nonlocal now
        now += seconds
        for _ in range(3):
            await asyncio.sleep(0)

    async def run() -> None:
        asyncio.get_running_loop().time = lambda: now  # type: ignore[method-assign]
        connection = Connection(10.0)
        connection.connection_made(transport)
        task = asyncio.create_task(connection.exchange(b"", body))
        await later(0)
        await play(connection, later)
        await later(0)
        assert task.done()
        try:
            task.result()
        finally:
            assert connection.reusable is not transport.aborted

    asyncio.run(run(), debug=False)
    return body


def test_who_is_slow_is_waited_for() -> None:
    """For longer than the timeout in all, but not for any byte."""

    async def play(connection: Connection, later: Later) -> None:
        for data in (HEAD, b"a", b"b"):
            await later(6)
            connection.data_received(data)

    assert exchange(play).data == b"ab"


def test_who_is_silent_is_given_up() -> None:
    async def play(connection: Connection, later: Later) -> None:
        await later(6)
        connection.data_received(HEAD + b"a")
        await later(6)
        await later(6)

    with pytest.raises(TimeoutError, match=r"nothing came for 10 s \(--timeout\)"):
        exchange(play)
