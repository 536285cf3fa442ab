"""Event streams: at the level of ASGI, and over real connections that are cut."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import msgspec
import pytest

from builtin_plugins.openai_server.errors import ApiError
from builtin_plugins.openai_server.sse import DONE, KEEP_ALIVE, Event, EventStream
from builtin_plugins.openai_server.time_limit import TimeLimit
from hookspecs.errors import InvalidRequestError
from tests.openai_server.fakes import FakeEngine, Step, serving, steps


class Data(msgspec.Struct):
    """The data of an event."""

    x: int


class Source:
    """A generator of events that knows whether it was closed."""

    def __init__(
        self,
        *events: Any,
        before: asyncio.Event | None = None,
        wait: asyncio.Event | None = None,
    ) -> None:
        self.events = events
        self.before = before
        """The first event comes when this is set, ..."""
        self.wait = wait
        """... and the end when this is."""
        self.taken = 0
        self.closed = asyncio.Event()

    async def __call__(self) -> AsyncGenerator[Event, None]:
        try:
            if self.before is not None:
                await self.before.wait()
            for event in self.events:
                if isinstance(event, Exception):
                    raise event
                self.taken += 1
                yield event
            if self.wait is not None:
                await self.wait.wait()
        finally:
            self.closed.set()


class Client:
    """The other side of an ASGI call."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.gone = asyncio.Event()
        self.reads = asyncio.Event()
        """Cleared: a send waits."""
        self.reads.set()
        self.got = asyncio.Event()
        """Set at each message."""

    async def receive(self) -> dict[str, Any]:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        await self.reads.wait()
        self.messages.append(message)
        self.got.set()

    async def has(self, count: int) -> None:
        """Wait for so many messages."""
        while len(self.messages) < count:
            self.got.clear()
            await self.got.wait()

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.messages)


async def started(
    source: Source, client: Client, limit_s: float | None = None, **options: Any
) -> asyncio.Task[None]:
    response = EventStream(source(), TimeLimit(limit_s), **options)
    return asyncio.create_task(run(response, client))


async def run(response: EventStream, client: Client) -> None:
    await response({"type": "http"}, client.receive, client.send)


def sent(*events: Any, **options: Any) -> bytes:
    """All that is sent for these events."""

    async def main() -> bytes:
        client = Client()
        await (await started(Source(*events), client, **options))
        assert client.messages[-1].get("more_body", False) is False
        return client.body

    return asyncio.run(main())


def test_forms_of_events() -> None:
    assert sent(Data(1), ("named", Data(2)), b"data: {}\n\n") == (
        b'data: {"x":1}\n\nevent: named\ndata: {"x":2}\n\ndata: {}\n\ndata: [DONE]\n\n'
    )
    assert sent() == DONE
    assert sent(Data(1), last=b"") == b'data: {"x":1}\n\n'


def test_headers_are_those_of_a_stream() -> None:
    async def main() -> None:
        client = Client()
        await (await started(Source(Data(1)), client))
        headers = dict(client.messages[0]["headers"])
        assert client.messages[0]["status"] == 200
        assert headers[b"content-type"] == b"text/event-stream; charset=utf-8"
        assert headers[b"cache-control"] == b"no-cache"
        assert b"content-length" not in headers

    asyncio.run(main())


def test_a_failure_before_the_first_event_is_raised() -> None:
    async def main() -> None:
        for failure in (InvalidRequestError("no", param="n"), ConnectionError("an engine's")):
            source, client = Source(failure), Client()
            task = await started(source, client)
            with pytest.raises(type(failure)):
                await task
            assert source.closed.is_set()
            assert client.messages == []

    asyncio.run(main())


def test_a_first_event_that_takes_long_is_waited_for_with_comments() -> None:
    async def main() -> None:
        source, client = Source(Data(1), before=asyncio.Event()), Client()
        assert source.before is not None
        task = await started(source, client, keep_alive_s=0.001)
        await client.has(3)
        source.before.set()
        await task
        start, *comments, event, end = (message.get("body") for message in client.messages)
        assert (start, event, end) == (None, b'data: {"x":1}\n\n', DONE)
        assert set(comments) == {KEEP_ALIVE}

    asyncio.run(main())


def test_a_failure_after_the_first_comment_is_an_event() -> None:
    async def main() -> None:
        source, client = Source(ApiError(504, "late"), before=asyncio.Event()), Client()
        assert source.before is not None
        task = await started(source, client, keep_alive_s=0.001)
        await client.has(2)
        source.before.set()
        await task
        assert client.body.replace(KEEP_ALIVE, b"").startswith(b'data: {"error":')
        assert client.body.endswith(DONE)

    asyncio.run(main())


def test_a_client_that_leaves_before_the_first_event_closes_the_source() -> None:
    async def main() -> None:
        source, client = Source(Data(1), before=asyncio.Event()), Client()
        task = await started(source, client)
        client.gone.set()
        await task
        assert client.messages == []

    asyncio.run(main())


def test_the_end_of_the_time_is_an_error_event() -> None:
    async def main() -> None:
        source, client = Source(Data(1), wait=asyncio.Event()), Client()
        await (await started(source, client, limit_s=0.02))
        assert source.closed.is_set()
        assert b'data: {"x":1}' in client.body
        assert b'"code":"request_timeout"' in client.body
        assert client.body.endswith(DONE)

    asyncio.run(main())


def test_the_end_of_the_time_before_the_first_event_is_raised() -> None:
    async def main() -> None:
        client = Client()
        task = await started(Source(before=asyncio.Event()), client, limit_s=0.02)
        with pytest.raises(ApiError, match=r"longer than 0.02 s"):
            await task
        assert client.messages == []

    asyncio.run(main())


def test_a_source_that_never_waits_is_ended_too() -> None:
    async def endless() -> AsyncGenerator[Event, None]:
        while True:
            yield Data(1)

    async def main() -> None:
        client = Client()
        await EventStream(endless(), TimeLimit(0.01))({}, client.receive, client.send)
        assert client.body.endswith(DONE)
        assert client.body.count(b"request_timeout") == 1

    asyncio.run(main())


def test_a_later_failure_is_one_event() -> None:
    error = ApiError(504, "late", kind="timeout_error")
    body = sent(Data(1), error)
    assert body == (
        b'data: {"x":1}\n\n'
        b'data: {"error":{"message":"late","type":"timeout_error","param":null,"code":null}}\n\n'
        b"data: [DONE]\n\n"
    )
    named = sent(Data(1), error, error_event=lambda e: ("error", Data(e.status)), last=b"")
    assert named == b'data: {"x":1}\n\nevent: error\ndata: {"x":504}\n\n'


def test_an_unknown_failure_tells_no_details(caplog: pytest.LogCaptureFixture) -> None:
    body = sent(Data(1), KeyError("secret"))
    assert body.count(b"error") > 0
    assert b"secret" not in body
    assert "secret" in caplog.text


def test_a_client_that_leaves_closes_the_source() -> None:
    async def main() -> None:
        source, client = Source(Data(1), wait=asyncio.Event()), Client()
        task = await started(source, client)
        await client.has(2)
        client.gone.set()
        await task
        assert source.closed.is_set()
        assert DONE not in client.body

    asyncio.run(main())


def test_a_client_that_leaves_while_it_does_not_read() -> None:
    async def main() -> None:
        source, client = Source(*[Data(n) for n in range(100)]), Client()
        client.reads.clear()
        task = await started(source, client)
        client.gone.set()
        await task
        assert source.closed.is_set()

    asyncio.run(main())


def test_a_connection_that_breaks_closes_the_source() -> None:
    async def main() -> None:
        source, client = Source(Data(1), Data(2), wait=asyncio.Event()), Client()

        async def send(message: Any) -> None:
            if message["type"] == "http.response.body":
                raise OSError("broken pipe")

        response = EventStream(source(), TimeLimit(None))
        await response({"type": "http"}, client.receive, send)
        assert source.closed.is_set()

    asyncio.run(main())


def test_cancelling_closes_the_source() -> None:
    async def main() -> None:
        source, client = Source(Data(1), wait=asyncio.Event()), Client()
        task = await started(source, client)
        await client.has(2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert source.closed.is_set()

    asyncio.run(main())


def test_a_slow_reader_holds_the_source_back() -> None:
    async def main() -> None:
        source, client = Source(*[Data(n) for n in range(100)]), Client()
        client.reads.clear()
        task = await started(source, client)
        for _ in range(50):
            await asyncio.sleep(0)
        assert source.taken == 1
        client.reads.set()
        await task
        assert source.taken == 100

    asyncio.run(main())


def test_a_silent_stream_is_kept_alive() -> None:
    async def main() -> None:
        source, client = Source(Data(1), wait=asyncio.Event()), Client()
        assert source.wait is not None
        task = await started(source, client, keep_alive_s=0.001)
        await client.has(4)
        source.wait.set()
        await task
        start, first, *comments, end = (message.get("body") for message in client.messages)
        assert (start, first, end) == (None, b'data: {"x":1}\n\n', DONE)
        assert set(comments) == {b": keep-alive\n\n"}

    asyncio.run(main())


# Over connections


@pytest.mark.parametrize("stream", [True, False])
def test_disconnects_abort_in_the_engine(stream: bool) -> None:
    async def main() -> None:
        reached = asyncio.Event()
        script = [Step("a"), Step("b", gate=asyncio.Event(), reached=reached)]
        engine = FakeEngine(script)
        async with serving(engine) as client:
            body = {"prompt": ["p", "q"], "n": 2, "stream": stream}
            if stream:
                async with client.stream("POST", "/v1/completions", json=body) as response:
                    lines: AsyncIterator[str] = response.aiter_lines()
                    assert (await anext(lines)).startswith("data: ")
            else:
                call = asyncio.create_task(client.post("/v1/completions", json=body))
                await reached.wait()
                call.cancel()
                await asyncio.gather(call, return_exceptions=True)
            for request in engine.requests:
                await request.ended.wait()
            assert [request.closed for request in engine.requests] == [True, True]
            engine.script = steps("x")
            again = await client.post("/v1/completions", json={"prompt": "p"})
            assert again.json()["choices"][0]["text"] == "x"

    asyncio.run(asyncio.wait_for(main(), 30))


def test_chunks_come_as_they_are_made() -> None:
    async def main() -> None:
        gate = asyncio.Event()
        script = [Step("a"), Step("b", gate=gate)]
        async with serving(FakeEngine(script)) as client:
            body = {"prompt": "p", "stream": True}
            async with client.stream("POST", "/v1/completions", json=body) as response:
                lines: AsyncIterator[str] = response.aiter_lines()
                assert '"a"' in await anext(lines)
                gate.set()
                rest = [line async for line in lines if line]
        assert '"b"' in rest[0]
        assert rest[1:] == ["data: [DONE]"]

    asyncio.run(asyncio.wait_for(main(), 30))


def test_streams_end_one_by_one_on_a_connection() -> None:
    async def main() -> None:
        async with serving(FakeEngine(steps("a", "b"))) as client:
            body = {"prompt": "p", "stream": True}
            texts = [(await client.post("/v1/completions", json=body)).text for _ in range(3)]
        assert all(text.endswith("data: [DONE]\n\n") for text in texts)

    asyncio.run(asyncio.wait_for(main(), 30))
