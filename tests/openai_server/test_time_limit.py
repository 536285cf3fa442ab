"""`request_timeout_s`: in the form of each endpoint, and for clients that do not read."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from typing import Any

import pytest

from builtin_plugins.openai_server import dispatch
from tests.openai_server.fakes import FakeEngine, Step, client_for, serving

pytestmark = pytest.mark.anyio
USER = {"role": "user", "content": "hi"}
BODIES: dict[str, dict[str, Any]] = {
    "/v1/completions": {"prompt": "p"},
    "/v1/chat/completions": {"messages": [USER]},
    "/v1/responses": {"input": "hi"},
    "/v1/messages": {"model": "fake/model", "max_tokens": 9, "messages": [USER]},
}
LAST = {
    "/v1/completions": "data: [DONE]",
    "/v1/chat/completions": "data: [DONE]",
    "/v1/responses": "event: response.failed",
    "/v1/messages": "event: error",
}


@pytest.mark.parametrize("path", BODIES)
async def test_a_stream_ends_in_the_form_of_its_endpoint(path: str) -> None:
    engine = FakeEngine([Step("a"), Step("b", gate=asyncio.Event())])
    async with client_for(engine, request_timeout_s=0.1) as client:
        answer = await client.post(path, json={**BODIES[path], "stream": True})
    assert answer.status_code == 200
    assert answer.text.count("longer than 0.1 s") == 1
    assert answer.text.rstrip().split("\n\n")[-1].startswith(LAST[path])
    assert engine.requests[0].closed


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", BODIES)
async def test_before_its_start_it_is_504_and_not_to_be_repeated(path: str, stream: bool) -> None:
    engine = FakeEngine([Step("a", gate=asyncio.Event())])
    async with client_for(engine, request_timeout_s=0.02) as client:
        answer = await client.post(path, json={**BODIES[path], "stream": stream})
    assert answer.status_code == 504
    assert answer.headers["x-should-retry"] == "false"
    assert "longer than 0.02 s" in answer.json()["error"]["message"]
    assert engine.requests[0].closed


@pytest.mark.parametrize("path", BODIES)
async def test_a_client_that_does_not_read_is_cut_off(
    monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setattr(dispatch, "GRACE_S", 0.05)
    engine = FakeEngine([Step("x" * 1_000_000) for _ in range(50)])
    async with serving(engine, request_timeout_s=0.1) as client:
        body = json.dumps({**BODIES[path], "max_tokens": 99, "stream": True}).encode()
        if path == "/v1/responses":
            body = json.dumps({**BODIES[path], "stream": True}).encode()
        with socket.create_connection(("127.0.0.1", client.base_url.port or 0)) as connection:
            connection.setblocking(False)
            loop = asyncio.get_running_loop()
            head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\n"
            head += f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
            await loop.sock_sendall(connection, head.encode() + body)
            while not engine.requests:
                await asyncio.sleep(0)
            await engine.requests[0].ended.wait()
            assert engine.requests[0].closed
            got = b""
            with contextlib.suppress(ConnectionError):
                while data := await loop.sock_recv(connection, 1 << 20):
                    got += data
            assert b"\r\n0\r\n\r\n" not in got[-100:]
        assert (await client.get("/version")).status_code == 200
