"""Writes that are made together, and what a slow reader costs others."""

from __future__ import annotations

import asyncio
import gc
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from builtin_plugins.openai_server.writes import MAX_HELD, BatchedTransport, Writes
from tests.openai_server.fakes import FakeEngine, Step, serving, steps


class Sink(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.closed = False

    def write(self, data: Any) -> None:
        assert not self.closed
        self.written.append(bytes(data))

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed


def test_pieces_of_one_turn_are_one_write_a_connection() -> None:
    async def main() -> None:
        writes, sinks = Writes(), [Sink(), Sink()]
        one, other = (BatchedTransport(sink, writes) for sink in sinks)
        for data in (b"a", b"b"):
            one.write(data)
            other.write(data)
        assert [sink.written for sink in sinks] == [[], []]
        await asyncio.sleep(0)
        one.write(b"c")
        await asyncio.sleep(0)
        assert [sink.written for sink in sinks] == [[b"ab", b"c"], [b"ab"]]

    asyncio.run(main())


@given(st.lists(st.integers(1, 50_000), max_size=20))
def test_what_is_held_back_is_bounded_and_in_order(sizes: list[int]) -> None:
    async def main() -> None:
        sink = Sink()
        transport = BatchedTransport(sink, Writes())
        sent = b""
        for number, size in enumerate(sizes):
            piece = bytes([number]) * size
            transport.write(piece)
            sent += piece
            assert len(sent) - len(b"".join(sink.written)) <= MAX_HELD
        await asyncio.sleep(0)
        assert b"".join(sink.written) == sent

    asyncio.run(main())


def test_closing_writes_first_and_aborting_does_not() -> None:
    async def main() -> None:
        writes, closed, aborted, lost = Writes(), Sink(), Sink(), Sink()
        BatchedTransport(closed, writes).write(b"a")
        for sink in (closed, aborted, lost):
            transport = BatchedTransport(sink, writes)
            transport.write(b"b")
            if sink is closed:
                transport.close()
            elif sink is aborted:
                transport.abort()
        lost.closed = True  # by the other side
        await asyncio.sleep(0)
        assert (closed.written, aborted.written, lost.written) == ([b"b"], [], [])
        assert closed.closed

    asyncio.run(main())


def test_a_client_that_does_not_read_is_waited_for_and_holds_up_nobody() -> None:
    """Chunks of a megabyte, so that no buffer of the system takes all of them."""

    async def main() -> None:
        number, size = 24, 1_000_000
        engine = FakeEngine(scripts=[[Step("#" * size) for _ in range(number)]])
        engine.script = steps("a", "b")
        async with serving(engine) as client:
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", client.base_url.port, limit=1 << 16
            )
            body = json.dumps({"prompt": "p", "max_tokens": 999, "stream": True}).encode()
            head = b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n"
            head += b"content-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body)
            writer.write(head + body)
            await reader.readuntil(b"\r\n\r\n")
            # It reads no more. Others are answered, as often as its whole stream has chunks.
            for _ in range(number):
                answer = await client.post("/v1/completions", json={"prompt": "p", "stream": True})
                assert answer.text.endswith("data: [DONE]\n\n")
            slow = engine.requests[0]
            assert not slow.finished
            rest = await reader.read(-1)
            assert rest.count(b"#") == number * size
            assert b"data: [DONE]\n\n" in rest[-100:]
            assert slow.finished
            writer.close()

    asyncio.run(asyncio.wait_for(main(), 60))


def _cycles() -> list[RequestResponseCycle]:
    return [each for each in gc.get_objects() if type(each) is RequestResponseCycle]


@pytest.mark.parametrize("stream", [True, False])
def test_a_request_that_was_answered_is_gone_without_the_collector(stream: bool) -> None:
    async def main() -> int:
        engine = FakeEngine()
        engine.script = steps("a", "b")
        async with serving(engine) as client:
            for _ in range(5):
                await client.post("/v1/completions", json={"prompt": "p", "stream": stream})
            return len(_cycles())

    gc.collect()
    before = len(_cycles())  # which other tests left, in frames of their failures or frozen
    gc.disable()
    try:
        assert asyncio.run(main()) - before <= 1, "the last one of the connection"
    finally:
        gc.enable()
