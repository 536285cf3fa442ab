"""The server on a socket: its start and end, and what is wrong below HTTP requests."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from builtin_plugins.openai_server import server as server_module
from builtin_plugins.openai_server.limits import HEAD_BYTES, HEADERS
from builtin_plugins.openai_server.server import OpenAIServer
from tests.openai_server.fakes import FakeEngine, Step, context_for, serving

pytestmark = pytest.mark.anyio


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    """Both event loops that the kernel may run."""
    return "asyncio", {"use_uvloop": request.param}


@contextlib.asynccontextmanager
async def started(
    engine: FakeEngine, **settings: Any
) -> AsyncIterator[tuple[asyncio.Task[None], tuple[str, int]]]:
    """The task of a server's `serve`, and its address."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = OpenAIServer(context_for(engine, listen_fd=listener.fileno(), **settings))
        task = asyncio.create_task(server.serve())
        try:
            yield task, listener.getsockname()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def exchange(address: tuple[str, int], data: bytes) -> bytes:
    """What the server sends until it closes the connection."""
    reader, writer = await asyncio.open_connection(*address)
    try:
        writer.write(data)
        with contextlib.suppress(ConnectionError):
            return await reader.read()
        return b""
    finally:
        writer.close()


async def test_it_serves_until_cancelled_and_leaves_the_socket_open() -> None:
    async with started(FakeEngine()) as (task, address):
        url = f"http://127.0.0.1:{address[1]}"
        async with httpx.AsyncClient(base_url=url) as client:
            answer = await client.get("/version")
            assert answer.status_code == 200
            assert "server" not in answer.headers
            # A connection that is idle does not hold it up.
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        # The listening socket is the kernel's: connections queue for the other processes.
        _, writer = await asyncio.open_connection(*address)
        writer.close()


async def test_signals_are_left_to_the_kernel() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    async with serving(FakeEngine()) as client:
        await client.get("/health")
        during = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    assert during == before


async def test_open_answers_may_end_when_it_stops() -> None:
    engine = FakeEngine([Step("a"), Step("b", gate=asyncio.Event(), reached=asyncio.Event())])
    last = engine.script[1]
    assert last.gate is not None and last.reached is not None
    async with started(engine) as (task, address):
        url = f"http://127.0.0.1:{address[1]}"
        async with httpx.AsyncClient(base_url=url) as client:
            body = {"model": "fake/model", "max_tokens": 9, "messages": [MESSAGE]}
            request = asyncio.create_task(client.post("/v1/messages", json=body))
            await last.reached.wait()
            task.cancel()
            last.gate.set()
            answer = await request
    assert answer.status_code == 200
    assert answer.json()["content"][0]["text"] == "ab"


MESSAGE = {"role": "user", "content": "hi"}


async def test_answers_that_do_not_end_are_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "CLOSE_S", 0.05)
    engine = FakeEngine([Step("a", gate=asyncio.Event(), reached=asyncio.Event())])
    reached = engine.script[0].reached
    assert reached is not None
    async with started(engine) as (task, address):
        url = f"http://127.0.0.1:{address[1]}"
        async with httpx.AsyncClient(base_url=url, timeout=30) as client:
            body = {"model": "fake/model", "max_tokens": 9, "messages": [MESSAGE]}
            request = asyncio.create_task(client.post("/v1/messages", json=body))
            await reached.wait()
            task.cancel()
            with pytest.raises(httpx.TransportError):
                await request
            await asyncio.wait({task})
    assert engine.requests[0].closed


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET /version HTTP/1.1\r\nhost: a\r\nx: " + b"a" * HEAD_BYTES.value, b"431"),
        (b"GET /" + b"a" * HEAD_BYTES.value + b" HTTP/1.1\r\nhost: a", b"431"),
        (b"GET /version HTTP/1.1\r\nhost: a" + b"\r\nx: a" * HEADERS.value, b"431"),
        (b"nonsense", b"400"),
        (b"POST /tokenize HTTP/1.1\r\nhost: a\r\ncontent-length: x", b"400"),
        (b"POST /tokenize HTTP/1.1\r\ncontent-length: 1\r\ntransfer-encoding: chunked", b"400"),
    ],
)
async def test_a_head_that_is_too_large_or_no_http_is_refused(head: bytes, status: bytes) -> None:
    async with started(FakeEngine()) as (_, address):
        answer = await exchange(address, head + b"\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 " + status)
    assert b'{"error":{"message":"' in answer
    assert answer.count(b"HTTP/1.1 ") == 1


@pytest.mark.parametrize("pieces", [1, 2, 7, 50])
async def test_a_head_is_counted_once_in_however_many_pieces(pieces: int) -> None:
    room = HEAD_BYTES.value - 100
    async with started(FakeEngine()) as (_, address):
        for size, status in ((room, b"200"), (HEAD_BYTES.value, b"431")):
            head = b"GET /version HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\nx: "
            head += b"a" * (size - len(head)) + b"\r\n\r\n"
            reader, writer = await asyncio.open_connection(*address)
            step = len(head) // pieces + 1
            for begin in range(0, len(head), step):
                writer.write(head[begin : begin + step])
                await writer.drain()
                await asyncio.sleep(0.001)
            assert (await reader.read(12)) == b"HTTP/1.1 " + status
            writer.close()


async def test_large_bodies_and_heads_behind_them_are_not_one_head() -> None:
    text = b'{"prompt": "' + b"a" * 200_000 + b'"}'
    head = b"POST /tokenize HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    request = head + b"content-length: %d\r\n\r\n" % len(text) + text
    last = b"GET /version HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
    async with started(FakeEngine()) as (_, address):
        answer = await exchange(address, request * 3 + last)
    assert answer.count(b"HTTP/1.1 200") == 4


async def test_a_head_without_end_is_refused() -> None:
    async with started(FakeEngine()) as (_, address):
        endless = b"GET / HTTP/1.1\r\nx: " + b"a" * (HEAD_BYTES.value + 300_000)
        reader, writer = await asyncio.open_connection(*address)
        with contextlib.suppress(ConnectionError):
            writer.write(endless)
            await writer.drain()
            await reader.read()
        writer.close()


@pytest.mark.parametrize("begun", [b"", b"GET /version HTTP/1.1\r\nhost"])
async def test_a_head_that_does_not_arrive_ends_the_connection(begun: bytes) -> None:
    async with started(FakeEngine(), body_timeout_s=0.05) as (_, address):
        assert await exchange(address, begun) == b""


async def test_a_large_head_within_the_limit_and_many_requests_on_a_connection_pass() -> None:
    async with serving(FakeEngine()) as client:
        for _ in range(20):
            answer = await client.get("/version", headers={"x": "a" * 10_000})
            assert answer.status_code == 200
