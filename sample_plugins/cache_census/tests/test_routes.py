"""The application, called as a server would, with a fake of what the kernel lends."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, NamedTuple, cast

import msgspec
import pytest
from hookspecs import EngineConfig
from hookspecs.contracts.frontend import EngineClient, HttpRoutesContext
from hookspecs.errors import (
    CommandError,
    EngineDeadError,
    FrameworkError,
    InternalError,
    InvalidRequestError,
)

from cache_census import routes
from cache_census.routes import CensusRoutes

MOUNT = "/plugins/cache-census"


class FakeEngine:
    """Answers commands with `result`, which may be an exception, or None for no answer at all."""

    def __init__(self, result: Any) -> None:
        self.result = result
        self.asked: list[tuple[str, dict[str, Any]]] = []

    async def command(self, name: str, arguments: Mapping[str, Any]) -> Any:
        self.asked.append((name, dict(arguments)))
        if self.result is None:
            await asyncio.Event().wait()
        if isinstance(self.result, Exception):
            raise self.result
        return self.result


class Reply(NamedTuple):
    """What came back."""

    status: int
    headers: dict[bytes, bytes]
    body: bytes

    def json(self) -> Any:
        return msgspec.json.decode(self.body)


def call(engine: FakeEngine, query: str = "", *, path: str = "/", method: str = "GET") -> Reply:
    context = HttpRoutesContext(config=EngineConfig(), engine=cast(EngineClient, engine))
    scope = {
        "type": "http",
        "method": method,
        "path": MOUNT + path,
        "root_path": MOUNT,
        "query_string": query.encode(),
        "headers": [],
    }
    sent: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    asyncio.run(CensusRoutes(context).asgi()(scope, None, send))
    start, body = sent
    return Reply(start["status"], dict(start["headers"]), body["body"])


def test_one_engine_and_several_have_one_form() -> None:
    assert call(FakeEngine({"engine": 0})).json() == {"engines": [{"engine": 0}]}
    several = [{"engine": 0}, {"engine": 1}]
    assert call(FakeEngine(several)).json() == {"engines": several}


def test_the_query_is_the_arguments() -> None:
    engine = FakeEngine({})
    assert call(engine, "tenant=a&tenant=b%20c&tenant=&limit=7").status == 200
    assert call(engine).status == 200
    asked = {"tenants": ["a", "b c", ""], "limit": 7}
    assert engine.asked == [("cache-census", asked), ("cache-census", {})]


@pytest.mark.parametrize("query", ["limit=x", "limit=-1", "limit=1&limit=2", "limit=", "tenants=a"])
def test_a_wrong_query_asks_nobody(query: str) -> None:
    engine = FakeEngine({})
    reply = call(engine, query)
    assert reply.status == 400
    assert query.partition("=")[0] in reply.json()["error"]
    assert engine.asked == []


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (InvalidRequestError("limit is too large"), 400),
        (CommandError("it failed"), 500),
        (InternalError("a defect"), 500),
        (EngineDeadError("it was killed"), 503),
    ],
)
def test_errors_have_their_status(error: FrameworkError, status: int) -> None:
    reply = call(FakeEngine(error))
    assert (reply.status, reply.json()) == (status, {"error": str(error)})


def test_an_engine_that_is_stuck_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "COMMAND_S", 0.01)
    reply = call(FakeEngine(None))
    assert reply.status == 504
    assert "no answer" in reply.json()["error"]


def test_other_paths_and_methods() -> None:
    engine = FakeEngine({})
    assert call(engine, path="/other").status == 404
    assert call(engine, path="").status == 404
    refused = call(engine, method="POST")
    assert (refused.status, refused.headers[b"allow"]) == (405, b"GET, HEAD")
    assert engine.asked == []
    head, got = call(engine, method="HEAD"), call(engine)
    assert (head.status, head.headers, head.body) == (200, got.headers, b"")


def test_digits_of_the_limit_are_not_cut_to_another_number() -> None:
    for limit, arrives in (("0" * 5000 + "7", 7), ("0" * 30, 0), ("9" * 5000, 10**18 - 1)):
        engine = FakeEngine({"engine": 0})
        assert call(engine, f"limit={limit}").status == 200
        assert engine.asked == [("cache-census", {"limit": arrives})]
