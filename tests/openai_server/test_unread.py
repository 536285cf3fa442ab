"""Connections whose request's body was not read end with the answer."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from builtin_plugins.openai_server import unread
from tests.openai_server.fakes import FakeEngine, serving

pytestmark = pytest.mark.anyio
KEY = b"x-api-key: k\r\n"
JSON = b"content-type: application/json\r\n"


@pytest.mark.parametrize("length", [b"content-length: 100\r\n", b"transfer-encoding: chunked\r\n"])
@pytest.mark.parametrize(
    ("line", "headers", "status"),
    [
        (b"POST /tokenize", b"", b"401"),
        (b"GET /version", b"", b"401"),
        (b"POST /nope", KEY, b"404"),
        (b"PUT /tokenize", KEY, b"405"),
        (b"POST /tokenize", KEY, b"415"),
        (b"POST /v1/messages", KEY, b"415"),
        (b"POST /plugins/none/", KEY, b"404"),
        (b"GET /health", b"", b"200"),
    ],
)
async def test_it_ends_though_the_body_never_does(
    monkeypatch: pytest.MonkeyPatch, line: bytes, headers: bytes, status: bytes, length: bytes
) -> None:
    monkeypatch.setattr(unread, "LINGER_S", 0.02)
    async with serving(FakeEngine(), api_keys=("k",), keep_alive_s=1000) as client:
        reader, writer = await asyncio.open_connection("127.0.0.1", client.base_url.port)
        writer.write(line + b" HTTP/1.1\r\nhost: a\r\n" + headers + length + b"\r\n")

        async def dribble() -> None:
            with contextlib.suppress(ConnectionError):
                while True:
                    writer.write(b"1\r\na\r\n" if b"chunked" in length else b"a")
                    await writer.drain()
                    await asyncio.sleep(0.001)

        sending = asyncio.create_task(dribble())
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 " + status)
        assert b"connection: close\r\n" in head
        with contextlib.suppress(ConnectionError):
            await reader.read()  # to the end of the connection
        sending.cancel()
        writer.close()


async def test_a_large_body_that_is_refused_does_not_hide_the_answer() -> None:
    async with serving(FakeEngine(), max_body_bytes=1024) as client:
        for _ in range(3):
            answer = await client.post("/tokenize", content=b"a" * 4_000_000, headers=TYPE)
            assert answer.status_code == 413
            assert answer.headers["connection"] == "close"


TYPE = {"content-type": "application/json"}


async def test_a_body_that_was_read_keeps_the_connection() -> None:
    async with serving(FakeEngine()) as client:
        for body in (b'{"prompt": "a"}', b"", b'{"prompt": 1}'):
            answer = await client.post("/tokenize", content=body, headers=TYPE)
            assert "connection" not in answer.headers
        assert "connection" not in (await client.get("/nope")).headers
