"""Requests that follow each other on one connection: where each ends, and what is no request."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable

import pytest

from tests.openai_server.fakes import FakeEngine, Step, serving

pytestmark = pytest.mark.anyio

BODY = b'{"prompt": "a"}'
HOST = b"host: localhost\r\n"
LAST = b"GET /version HTTP/1.1\r\n" + HOST + b"connection: close\r\n\r\n"


def tokenize(headers: bytes = b"", body: bytes = BODY) -> bytes:
    length = b"content-length: %d\r\n" % len(body)
    kind = b"content-type: application/json\r\n"
    return b"POST /tokenize HTTP/1.1\r\n" + HOST + kind + headers + length + b"\r\n" + body


def chunked(headers: bytes = b"", body: bytes = BODY) -> bytes:
    kind = b"content-type: application/json\r\ntransfer-encoding: chunked\r\n"
    head = b"POST /tokenize HTTP/1.1\r\n" + HOST + kind + headers + b"\r\n"
    return head + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)


async def exchange(port: int | None, data: bytes, step: int | None = None) -> bytes:
    """What comes until the server closes; `data` is sent in pieces of `step` bytes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for begin in range(0, len(data), step or len(data)):
        writer.write(data[begin : begin + (step or len(data))])
        await writer.drain()
        await asyncio.sleep(0)
    answer = await reader.read()
    writer.close()
    return answer


def statuses(answer: bytes) -> list[int]:
    return [int(found) for found in re.findall(rb"HTTP/1\.1 (\d+) ", answer)]


UPGRADES = [
    b"connection: Upgrade\r\nupgrade: h2c\r\n",
    b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAAAAIA\r\n",
    b"UPGRADE: websocket\r\nCONNECTION: keep-alive, upgrade\r\n",
    b"upgrade: a\r\nupgrade: b\r\nconnection: upgrade\r\n",
]


@pytest.mark.parametrize("headers", UPGRADES)
@pytest.mark.parametrize("make", [tokenize, chunked])
@pytest.mark.parametrize("step", [None, 1, 7, 150])
async def test_a_request_that_asks_for_another_protocol_is_answered_as_any(
    headers: bytes, make: Callable[..., bytes], step: int | None
) -> None:
    inner = b"GET /nope HTTP/1.1\r\n" + HOST + b"\r\n"
    async with serving(FakeEngine()) as client:
        port = client.base_url.port
        plain = await exchange(port, make() + LAST, step)
        answer = await exchange(port, make(headers) * 3 + LAST, step)
        smuggled = await exchange(port, make(headers, inner) + LAST, step)
    assert statuses(plain) == [200, 200]
    assert statuses(answer) == [200, 200, 200, 200]
    assert answer.count(b'"tokens":') == 3
    # The body is no request, but a body that is no JSON.
    assert statuses(smuggled) == [400, 200]


async def test_without_a_body_the_next_request_follows() -> None:
    get = b"GET /version HTTP/1.1\r\n" + HOST + UPGRADES[0] + b"\r\n"
    async with serving(FakeEngine()) as client:
        answer = await exchange(client.base_url.port, get * 500 + LAST)
    assert statuses(answer) == [200] * 501


async def test_connect_is_refused() -> None:
    async with serving(FakeEngine()) as client:
        request = b"CONNECT localhost:1 HTTP/1.1\r\n" + HOST + b"\r\n"
        answer = await exchange(client.base_url.port, request + LAST)
    assert statuses(answer) == [400]


NO_REQUESTS = [
    (b"garbage\r\n\r\n", 400),
    (b"GET /version HTTP/1.1\r\nno colon\r\n\r\n", 400),
    (b"GET /version HTTP/1.1\r\n" + b"x: y\r\n" * 200 + b"\r\n", 431),
    (b"POST /tokenize HTTP/1.1\r\ntransfer-encoding: gzip, chunked\r\n\r\n", 501),
    (chunked()[:-40] + b"zz\r\n", 400),
    (b"POST /tokenize HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n", 400),
]


@pytest.mark.parametrize(("last", "status"), NO_REQUESTS)
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("before", [1, 3])
async def test_what_is_no_request_is_answered_behind_the_answers_before_it(
    last: bytes, status: int, stream: bool, before: int
) -> None:
    gate, reached = asyncio.Event(), asyncio.Event()
    engine = FakeEngine([Step("a"), Step("b", gate=gate, reached=reached)])
    body = json.dumps({"prompt": "a", "stream": stream}).encode()
    head = b"POST /v1/completions HTTP/1.1\r\n" + HOST + b"content-type: application/json\r\n"
    first = head + b"content-length: %d\r\n\r\n" % len(body) + body
    async with serving(engine) as client:
        reader, writer = await asyncio.open_connection("127.0.0.1", client.base_url.port)
        writer.write(first + tokenize() * (before - 1) + last + b"more")
        await reached.wait()
        gate.set()
        answer = await reader.read()
        writer.close()
    assert statuses(answer) == [200] * before + [status]
    if stream:
        assert answer.count(b"data: [DONE]") == 1
    assert answer.endswith(b"}")


async def test_a_head_that_does_not_arrive_leaves_the_answers_before_it() -> None:
    gate, reached = asyncio.Event(), asyncio.Event()
    engine = FakeEngine([Step("a", gate=gate, reached=reached)])
    body = b'{"prompt": "a"}'
    head = b"POST /v1/completions HTTP/1.1\r\n" + HOST + b"content-type: application/json\r\n"
    async with serving(engine, body_timeout_s=0.02) as client:
        reader, writer = await asyncio.open_connection("127.0.0.1", client.base_url.port)
        writer.write(head + b"content-length: %d\r\n\r\n" % len(body) + body + b"GET /ver")
        await reached.wait()
        await asyncio.sleep(0.1)  # the head is late now; whether it is, changes no answer
        gate.set()
        answer = await reader.read()
        writer.close()
    assert statuses(answer) == [200]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        (b"transfer-encoding: gzip, chunked\r\n", 501),
        (b"transfer-encoding: gzip\r\n", 501),
        (b"transfer-encoding: identity\r\n", 501),
        (b"transfer-encoding: chunked, chunked\r\n", 400),
        (b"transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n", 400),
        (b"transfer-encoding: gzip\r\ntransfer-encoding: chunked\r\n", 501),
        (b"expect: 200-ok\r\ncontent-length: 15\r\n", 417),
        (b"expect: 100-continue, b\r\ncontent-length: 15\r\n", 417),
        (b"expect: a\r\nexpect: 100-continue\r\ncontent-length: 15\r\n", 417),
    ],
)
async def test_codings_and_expectations_that_are_not_known_are_refused(
    headers: bytes, status: int
) -> None:
    async with serving(FakeEngine()) as client:
        for more in (b"", UPGRADES[0]):
            request = b"POST /tokenize HTTP/1.1\r\n" + HOST + headers + more + b"\r\n"
            answer = await exchange(client.base_url.port, request)
            assert statuses(answer) == [status]
            assert b'{"error":{"message":"' in answer


async def test_known_ones_pass_in_any_case() -> None:
    async with serving(FakeEngine()) as client:
        port = client.base_url.port
        expecting = tokenize(b"Expect: 100-Continue\r\n")
        answer = await exchange(port, expecting + LAST)
        coded = chunked().replace(b": chunked", b": Chunked")
        assert statuses(await exchange(port, coded + LAST)) == [200, 200]
    assert statuses(answer) in ([100, 200, 200], [200, 200])
