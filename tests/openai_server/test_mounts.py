"""Routes of plugins, behind the server's own authentication and limits."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from hookspecs.errors import QueueFullError
from tests.openai_server.fakes import FakeEngine, client_for, serving

pytestmark = pytest.mark.anyio


async def _echo(request: Request) -> Response:
    body = (await request.body()).decode()
    return JSONResponse({"path": request.url.path, "id": request.state.request_id, "body": body})


async def _broken(request: Request) -> Response:
    raise ZeroDivisionError


APP = Starlette(
    routes=[
        Route("/echo/{rest:path}", _echo, methods=["GET", "POST"]),
        Route("/broken", _broken),
    ]
)


async def raising(scope: Any, receive: Any, send: Any) -> None:
    raise ZeroDivisionError


async def full(scope: Any, receive: Any, send: Any) -> None:
    raise QueueFullError("too many")


async def cut(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"part", "more_body": True})
    raise ZeroDivisionError


async def reading(scope: Any, receive: Any, send: Any) -> None:
    while (await receive()).get("more_body"):
        pass
    await Response("read")(scope, receive, send)


ROUTES = {"hello": APP, "raising": raising, "full": full, "cut": cut, "reading": reading}


async def test_an_application_is_reached_under_its_name() -> None:
    async with client_for(FakeEngine(), routes=ROUTES) as client:
        answer = await client.post(
            "/plugins/hello/echo/a/b", content=b"text", headers={"x-request-id": "r1"}
        )
        missing = await client.get("/plugins/hello/other")
        alone = await client.get("/plugins/hello?a=%20b")
        unknown = await client.get("/plugins/none")
        listed = await client.get("/plugins")
    assert answer.json() == {"path": "/plugins/hello/echo/a/b", "id": "r1", "body": "text"}
    assert answer.headers["x-request-id"] == "r1"
    assert missing.status_code == 404
    assert (alone.status_code, alone.headers["location"]) == (307, "/plugins/hello/?a=%20b")
    assert unknown.status_code == 404
    assert "plugins" in listed.json()


async def test_a_key_is_needed() -> None:
    async with client_for(FakeEngine(), routes=ROUTES, api_keys=("k",)) as client:
        assert (await client.get("/plugins/hello/echo/a")).status_code == 401
        assert (await client.get("/plugins/hello")).status_code == 401
        key = {"x-api-key": "k"}
        assert (await client.get("/plugins/hello/echo/a", headers=key)).status_code == 200


async def test_bodies_are_bounded() -> None:
    async def chunks() -> Any:
        yield b"a" * 1000
        yield b"a" * 1000

    async with client_for(FakeEngine(), routes=ROUTES, max_body_bytes=1024) as client:
        declared = await client.post("/plugins/hello/echo/", content=b"a" * 2000)
        streamed = await client.post("/plugins/reading/", content=chunks())
    assert declared.status_code == 413
    assert streamed.status_code == 413


async def test_one_that_raises_fails_its_request_only(caplog: pytest.LogCaptureFixture) -> None:
    async with client_for(FakeEngine(), routes=ROUTES) as client:
        raised = await client.get("/plugins/raising/", headers={"x-request-id": "r2"})
        refused = await client.get("/plugins/full/")
        fine = await client.get("/plugins/hello/echo/")
    assert raised.status_code == 500
    error = raised.json()["error"]
    assert error["code"] == "plugin_failed"
    assert error["message"] == "plugin 'raising' failed at /plugins/raising/"
    assert refused.status_code == 429  # an error of the engine that the application let through
    assert fine.status_code == 200
    first, _ = [r for r in caplog.records if r.levelno >= logging.WARNING]
    assert "r2" in first.getMessage()


async def test_one_that_answers_and_then_raises_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As Starlette's own error middleware does."""
    async with client_for(FakeEngine(), routes=ROUTES) as client:
        assert (await client.get("/plugins/hello/broken")).status_code == 500
    (record,) = [r for r in caplog.records if r.levelno >= logging.WARNING]
    assert record.exc_info is not None


async def test_an_answer_that_was_begun_is_cut_off() -> None:
    async with serving(FakeEngine(), routes=ROUTES) as client:
        with pytest.raises(httpx.RemoteProtocolError):
            await client.get("/plugins/cut/")
        assert (await client.get("/version")).status_code == 200


def start(status: Any = 200, headers: Any = ()) -> dict[str, Any]:
    return {"type": "http.response.start", "status": status, "headers": headers}


END = {"type": "http.response.body", "body": b"end"}


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [END],
        [{}],
        [{"type": "websocket.accept"}],
        [{"type": "http.response.start"}, END],
        [start(None), END],
        [start("200"), END],
        [start(True), END],
        [start(99), END],
        [start(101), END],
        [start(9999), END],
        [start(headers=None), END],
        [start(headers=[("a", "b")]), END],
        [start(headers=[(b"a", "b")]), END],
        [start(headers=[b"a"]), END],
        [start(headers=[(b"a b", b"c")]), END],
        [start(headers=[(b"", b"c")]), END],
        [start(headers=[(b"a", b"b\r\nc: d")]), END],
        [start(headers=[(b"a", b"b\0")]), END],
        [start(headers=[(b"content-length", b"x")]), END],
        [start(headers=[(b"content-length", b"-3")]), END],
        [start(headers=[(b"content-length", b"9" * 5000)]), END],
    ],
)
async def test_one_that_breaks_the_protocol_before_its_answer_fails_as_json(
    messages: list[Any],
) -> None:
    async def breaking(scope: Any, receive: Any, send: Any) -> None:
        for message in messages:
            await send(message)

    async with serving(FakeEngine(), routes={**ROUTES, "breaking": breaking}) as client:
        for _ in range(2):
            answer = await client.get("/plugins/breaking/")
            assert answer.status_code == 500
            assert answer.json()["error"]["code"] == "plugin_failed"


@pytest.mark.parametrize(
    "messages",
    [
        [start(), start(), END],
        [start(), {"type": "http.response.body", "body": "text"}],
        [start(), {"type": "http.response.body", "body": 5, "more_body": True}, END],
        [start(headers=[(b"content-length", b"2")]), END],
        [start(headers=[(b"content-length", b"9")]), END],
        [start()],
    ],
)
async def test_one_that_breaks_it_later_is_cut_off(messages: list[Any]) -> None:
    async def breaking(scope: Any, receive: Any, send: Any) -> None:
        for message in messages:
            await send(message)

    async with serving(FakeEngine(), routes={**ROUTES, "breaking": breaking}) as client:
        with pytest.raises(httpx.RemoteProtocolError):
            await client.get("/plugins/breaking/")
        assert (await client.get("/version")).status_code == 200


async def test_what_is_sent_after_the_answer_spoils_it_not() -> None:
    async def talkative(scope: Any, receive: Any, send: Any) -> None:
        for message in (start(headers=iter([(b"X-A", b"b")])), END, END, start()):
            await send(message)

    async with serving(FakeEngine(), routes={"talkative": talkative}) as client:
        for _ in range(2):
            answer = await client.get("/plugins/talkative/")
            assert (answer.status_code, answer.text) == (200, "end")
            assert answer.headers["x-a"] == "b"


@pytest.mark.parametrize("error", [SystemExit(3), GeneratorExit(), asyncio.CancelledError()])
async def test_exceptions_that_are_no_errors_fail_the_request_only(error: BaseException) -> None:
    async def exiting(scope: Any, receive: Any, send: Any) -> None:
        raise error

    async with serving(FakeEngine(), routes={"exiting": exiting}) as client:
        for _ in range(2):
            answer = await client.get("/plugins/exiting/")
            assert answer.status_code == 500
            assert answer.json()["error"]["code"] == "plugin_failed"
