"""From a request to an answer, whatever happens on the way."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

from hookspecs.errors import (
    CommandError,
    EngineGenerateError,
    EngineUnavailableError,
    InvalidRequestError,
    QueueFullError,
    RequestFailedError,
)
from tests.openai_server.fakes import FakeEngine, Step, client_for, serving

pytestmark = pytest.mark.anyio
JSON = {"content-type": "application/json"}


class TokenizingEngine(FakeEngine):
    """Its `tokenize` waits or fails as told."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.gate: asyncio.Event | None = None
        self.error: BaseException | None = None

    async def tokenize(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        self.begun.set()
        if self.error is not None:
            raise self.error
        try:
            if self.gate is not None:
                await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return [1]


@pytest.mark.parametrize("path", ["/", "/nope", "/v1/models/", "/v1", "/plugins/none/x", "//"])
async def test_unknown_paths_are_404_as_json(path: str) -> None:
    async with client_for(FakeEngine()) as client:
        answer = await client.get(path)
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/json"
    assert answer.json()["error"]["code"] == "not_found"


async def test_other_methods_are_405_and_told_what_is_allowed() -> None:
    async with client_for(FakeEngine()) as client:
        deleted = await client.delete("/version")
        got = await client.get("/tokenize")
        options = await client.options("/version")
    assert (deleted.status_code, deleted.headers["allow"]) == (405, "GET, HEAD, OPTIONS")
    assert (got.status_code, got.headers["allow"]) == (405, "OPTIONS, POST")
    assert got.json()["error"]["code"] == "method_not_allowed"
    assert (options.status_code, options.headers["allow"]) == (204, "GET, HEAD, OPTIONS")


async def test_head_has_the_headers_of_get_and_no_body() -> None:
    async with client_for(FakeEngine()) as client:
        got, head = await client.get("/version"), await client.head("/version")
        missing = await client.head("/nope")
    assert head.status_code == 200
    assert head.content == b"" == missing.content
    assert head.headers["content-length"] == got.headers["content-length"]
    assert missing.status_code == 404


@pytest.mark.parametrize(
    "headers",
    [
        {"content-type": "text/plain"},
        {"content-type": "application/x-www-form-urlencoded"},
        {"content-type": "application/json; charset=utf-16"},
        {"content-type": "application/json", "content-encoding": "gzip"},
        {},
    ],
)
async def test_bodies_that_are_not_declared_as_json_are_415(headers: dict[str, str]) -> None:
    async with client_for(FakeEngine()) as client:
        answer = await client.post("/tokenize", content=b'{"prompt": "a"}', headers=headers)
    assert answer.status_code == 415
    assert answer.json()["error"]["code"] == "unsupported_media_type"


@pytest.mark.parametrize("kind", ["application/json; charset=UTF-8", "Application/JSON"])
async def test_other_spellings_of_json_pass(kind: str) -> None:
    async with client_for(FakeEngine()) as client:
        answer = await client.post(
            "/tokenize", content=b'{"prompt": "a"}', headers={"content-type": kind}
        )
    assert answer.status_code == 200


async def stream_of(*chunks: bytes) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


async def test_bodies_above_the_limit_are_413_whether_declared_or_not() -> None:
    body = b'{"prompt": "' + b"a" * 2000 + b'"}'
    async with client_for(FakeEngine(), max_body_bytes=1024) as client:
        declared = await client.post("/tokenize", content=body, headers=JSON)
        streamed = await client.post(
            "/tokenize", content=stream_of(body[:1000], body[1000:]), headers=JSON
        )
        fits = await client.post("/tokenize", content=b'{"prompt": "a"}', headers=JSON)
    assert (declared.status_code, streamed.status_code, fits.status_code) == (413, 413, 200)
    assert "serving.max_body_bytes" in streamed.json()["error"]["message"]


@pytest.mark.parametrize("length", ["-1", "1e3", "²", "9" * 5000])
async def test_wrong_lengths_are_refused(length: str) -> None:
    """Servers refuse most of them; the application does not rely on that."""
    scope: dict[str, Any] = {
        "type": "http",
        "method": "POST",
        "path": "/tokenize",
        "headers": [
            (b"content-type", b"application/json"),
            (b"content-length", length.encode("latin-1")),
        ],
        "query_string": b"",
    }
    assert (await call(scope))[0] in (400, 413)


async def call(scope: dict[str, Any]) -> tuple[int, bytes]:
    from builtin_plugins.openai_server.app import build_app
    from tests.openai_server.fakes import context_for

    context = context_for(FakeEngine())
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b"{}", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    await build_app(context, context.options)(scope, receive, send)
    return sent[0]["status"], sent[1]["body"]


async def test_a_body_that_does_not_arrive_is_408_and_ends_the_connection() -> None:
    never = asyncio.Event()

    async def stuck() -> AsyncIterator[bytes]:
        yield b'{"prompt'
        await never.wait()

    async with client_for(FakeEngine(), body_timeout_s=0.01) as client:
        answer = await client.post("/tokenize", content=stuck(), headers=JSON)
    assert answer.status_code == 408
    assert answer.headers["connection"] == "close"
    assert answer.json()["error"]["code"] == "body_timeout"


async def test_a_request_that_takes_too_long_is_cancelled_and_504() -> None:
    engine = TokenizingEngine()
    engine.gate = asyncio.Event()
    async with client_for(engine, request_timeout_s=0.01) as client:
        answer = await client.post("/tokenize", json={"prompt": "a"})
    assert answer.status_code == 504
    assert answer.json()["error"]["code"] == "request_timeout"
    assert engine.cancelled.is_set()


async def test_a_stream_that_takes_too_long_ends_with_an_error_event() -> None:
    engine = FakeEngine([Step("a"), Step("b", gate=asyncio.Event())])
    body = {
        "model": "fake/model",
        "max_tokens": 9,
        "stream": True,
        "messages": [{"role": "user", "content": "hi"}],
    }
    async with client_for(engine, request_timeout_s=0.2) as client:
        answer = await client.post("/v1/messages", json=body)
    assert answer.status_code == 200
    assert answer.text.count("event: error") == 1
    assert answer.text.rstrip().rpartition("\n")[2].startswith('data: {"type":"error"')
    assert "longer than 0.2 s" in answer.text
    assert engine.requests[0].closed


async def test_a_timeout_of_a_part_is_not_taken_for_that_of_the_request() -> None:
    engine = TokenizingEngine()
    engine.error = TimeoutError("some part")
    async with client_for(engine, request_timeout_s=60) as client:
        answer = await client.post("/tokenize", json={"prompt": "a"})
    assert answer.status_code == 500


async def test_the_handler_is_cancelled_when_the_client_goes_away() -> None:
    engine = TokenizingEngine()
    engine.gate = asyncio.Event()
    async with serving(engine) as client:
        request = asyncio.create_task(client.post("/tokenize", json={"prompt": "a"}))
        await engine.begun.wait()
        request.cancel()
        await engine.cancelled.wait()
        engine.gate = None
        assert (await client.post("/tokenize", json={"prompt": "a"})).status_code == 200


async def test_an_unexpected_error_is_500_and_logged_once_with_its_request_id(
    caplog: pytest.LogCaptureFixture,
) -> None:
    engine = TokenizingEngine()
    engine.error = ZeroDivisionError()
    async with client_for(engine) as client:
        answer = await client.post(
            "/tokenize", json={"prompt": "a"}, headers={"x-request-id": "my-id.1"}
        )
    assert answer.status_code == 500
    assert answer.json()["error"]["message"] == "internal error: ZeroDivisionError"
    (record,) = [r for r in caplog.records if r.levelno >= logging.WARNING]
    assert "my-id.1" in record.getMessage()
    assert record.exc_info is not None
    assert record.exc_info[0] is ZeroDivisionError


@pytest.mark.parametrize(
    ("error", "status", "retry_after"),
    [
        (QueueFullError("", retry_after_s=3), 429, "3"),
        (EngineUnavailableError("it sleeps", retry_after_s=0.2), 503, "1"),
        (EngineGenerateError(""), 500, None),
    ],
)
async def test_errors_of_the_engine_have_their_status_and_a_message(
    error: Exception, status: int, retry_after: str | None
) -> None:
    engine = TokenizingEngine()
    engine.error = error
    async with client_for(engine) as client:
        answer = await client.post("/tokenize", json={"prompt": "a"})
    assert answer.status_code == status
    assert answer.headers.get("retry-after") == retry_after
    assert answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (CommandError("wrong state"), "false"),
        (RequestFailedError("broken", request_id="a"), "false"),
        (QueueFullError("full"), None),
        (EngineUnavailableError("asleep"), None),
    ],
)
async def test_clients_are_told_not_to_repeat_what_fails_again(
    error: Exception, told: str | None
) -> None:
    engine = TokenizingEngine()
    engine.error = error
    async with client_for(engine) as client:
        answer = await client.post("/tokenize", json={"prompt": "a"})
    assert answer.headers.get("x-should-retry") == told


@pytest.mark.parametrize(
    ("step", "told"),
    [
        (Step(finish="error"), "false"),
        (Step(finish="timeout"), "false"),
        (Step(finish="abort"), None),
    ],
)
async def test_the_same_of_requests_that_the_engine_ends(step: Step, told: str | None) -> None:
    async with client_for(FakeEngine([step])) as client:
        for stream in (False, True):
            answer = await client.post("/v1/completions", json={"prompt": "a", "stream": stream})
            assert answer.headers.get("x-should-retry") == told


async def test_errors_have_the_form_of_their_api() -> None:
    async with client_for(FakeEngine(), api_keys=("k",)) as client:
        unauthorized = await client.post("/v1/messages", json={})
        key = {"x-api-key": "k"}
        wrong = await client.post("/v1/messages", json={}, headers=key)
        method = await client.get("/v1/messages", headers=key)
    for answer, status in ((unauthorized, 401), (wrong, 400), (method, 405)):
        assert answer.status_code == status
        assert answer.json()["type"] == "error"
        assert answer.json()["request_id"] == answer.headers["x-request-id"]


class Unprintable(Exception):
    def __str__(self) -> str:
        raise ZeroDivisionError


class UnprintableRefusal(EngineUnavailableError):
    def __str__(self) -> str:
        raise ZeroDivisionError


FAILURES = [
    (SystemExit(3), 500),
    (GeneratorExit(), 500),
    (asyncio.CancelledError(), 500),
    (Unprintable(), 500),
    (UnprintableRefusal("a"), 503),
    (RuntimeError("half \ud800"), 500),
    (CommandError("half \ud800"), 409),
    (RequestFailedError("half \udc00 \0", request_id="a"), 500),
    (InvalidRequestError("half \ud800", param="a\udfff"), 400),
    (EngineUnavailableError("a", retry_after_s=float("inf")), 503),
    (QueueFullError("a", retry_after_s=float("nan")), 429),
]


@pytest.mark.parametrize(("error", "status"), FAILURES)
async def test_whatever_is_raised_is_answered_as_json(error: BaseException, status: int) -> None:
    engine = TokenizingEngine()
    engine.error = error
    engine.script = [Step(raises=error)]  # type: ignore[arg-type]
    chat = {"model": "fake/model", "messages": [{"role": "user", "content": "hi"}]}
    async with serving(engine) as client:
        for path, body in [
            ("/tokenize", {"prompt": "a"}),
            ("/v1/completions", {"prompt": "a"}),
            ("/v1/completions", {"prompt": "a", "stream": True}),
            ("/v1/messages", {**chat, "max_tokens": 3, "stream": True}),
        ]:
            answer = await client.post(path, json=body)
            assert answer.status_code == status, path
            assert answer.headers["content-type"] == "application/json"
            assert answer.json()["error"]["message"]


@pytest.mark.parametrize("error", [error for error, _ in FAILURES])
async def test_the_same_late_in_a_stream_is_an_event(error: BaseException) -> None:
    engine = FakeEngine([Step("a"), Step(raises=error)])  # type: ignore[arg-type]
    async with serving(engine) as client:
        answer = await client.post("/v1/completions", json={"prompt": "a", "stream": True})
        assert answer.status_code == 200
        assert '"error":{"message":' in answer.text
        assert answer.text.endswith("data: [DONE]\n\n")
