"""The application, called as a server would, with a fake of what the kernel lends."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import Any, NamedTuple, cast

import msgspec
import pytest
from hookspecs import EngineConfig
from hookspecs.contracts.frontend import (
    EngineClient,
    HttpRoutesContext,
    ServiceInfo,
)
from hookspecs.contracts.stats import Exposition
from hookspecs.errors import (
    CommandError,
    EngineDeadError,
    EngineUnavailableError,
    InternalError,
    InvalidRequestError,
)
from hookspecs.types.control import EngineHealth

from queue_dashboard import status
from queue_dashboard.plugin import plugin
from queue_dashboard.routes import QueueDashboard

METRICS = b"""\
# TYPE framework_requests_total counter
framework_requests_total{engine="0",finish_reason="stop",model_name="a\\"finish_reason=b"} 3.0
framework_requests_total{engine="1",finish_reason="stop",model_name="a"} 2.0
framework_requests_total{engine="0",finish_reason="length",model_name="a"} 1.0
framework_steps_total{engine="0"} 99.0
"""
ENGINE = {"engine_index": 0, "state": "running", "num_running": 2, "num_waiting": 7, "step": 41}
MOUNT = "/plugins/queue-dashboard"


class FakeEngine:
    """The part of an EngineClient that the dashboard uses."""

    def __init__(self) -> None:
        self.info = ServiceInfo(
            model="a/model",
            max_model_len=64,
            vocab_size=128,
            version="1.2.3",
            api_version="1.0",
            started_at=1_700_000_000,
        )
        self.state = EngineHealth(live=True, ready=True)
        self.results: dict[str, Any] = {"get_status": ENGINE, "reset_prefix_cache": True}
        self.commands: list[tuple[str, dict[str, Any]]] = []
        self.metrics = [Exposition(content_type="text/plain; version=1.0.0", body=METRICS)]
        self.stuck = False

    async def command(self, name: str, arguments: Mapping[str, Any]) -> Any:
        self.commands.append((name, dict(arguments)))
        if self.stuck:
            await asyncio.Event().wait()
        result = self.results[name]
        if isinstance(result, Exception):
            raise result
        return result

    def health(self) -> EngineHealth:
        return self.state

    def plugins(self) -> list[dict[str, Any]]:
        calls = {"on_step_finished": 5, "on_request_finished": 2}
        fine = {"name": "fine", "state": "active", "calls": calls, "errors": {}, "error": None}
        bad = {"name": "bad", "state": "broken", "calls": {}, "errors": {}, "error": "no module"}
        return [fine, bad]

    def expositions(self) -> list[Exposition]:
        return self.metrics


class Reply(NamedTuple):
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return msgspec.json.decode(self.body)


def call(
    engine: FakeEngine, method: str, path: str, headers: Mapping[str, str] | None = None
) -> Reply:
    """One request to the application as it is mounted."""
    context = HttpRoutesContext(config=EngineConfig(), engine=cast(EngineClient, engine))
    app = QueueDashboard(context).asgi()
    scope = {
        "type": "http",
        "method": method,
        "path": MOUNT + path,
        "root_path": MOUNT,
        "headers": [(k.encode(), v.encode()) for k, v in (headers or {}).items()],
    }
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    asyncio.run(app(scope, receive, send))
    start, body = sent
    found = {name.decode(): value.decode() for name, value in start["headers"]}
    return Reply(start["status"], found, body["body"])


JSON = {"content-type": "application/json"}


def test_the_json_has_what_the_engine_says() -> None:
    reply = call(FakeEngine(), "GET", "/status.json")
    assert reply.status == 200
    assert reply.headers["content-type"] == "application/json"
    assert reply.json() == {
        "model": "a/model",
        "version": "1.2.3",
        "api_version": "1.0",
        "started_at": 1_700_000_000,
        "health": {"live": True, "ready": True, "reason": ""},
        "engines": [ENGINE],
        "engines_error": None,
        "finished": {"stop": 5, "length": 1},
        "plugins": [
            {"name": "fine", "state": "active", "calls": 7, "errors": 0, "error": None},
            {"name": "bad", "state": "broken", "calls": 0, "errors": 0, "error": "no module"},
        ],
    }


def test_the_page_shows_the_same_and_loads_nothing() -> None:
    reply = call(FakeEngine(), "GET", "/")
    page = reply.body.decode()
    assert reply.status == 200
    assert reply.headers["content-type"] == "text/html; charset=utf-8"
    assert reply.headers["content-security-policy"].startswith("default-src 'none'")
    for part in ("a/model: ready", "1.2.3", "2023-11-14 22:13:20", "<td>7</td>", "no module"):
        assert part in page
    assert "<tr><td>stop</td><td>5</td></tr>" in page
    assert not re.search(r"src=|href=|url\(|<script", page)


def test_everything_is_escaped() -> None:
    engine, evil = FakeEngine(), "<script>alert('&\"')</script>"
    engine.info = msgspec.structs.replace(engine.info, model=evil, version=evil)
    engine.state = EngineHealth(live=True, ready=False, reason=evil)
    engine.results["get_status"] = CommandError(evil)
    page = call(engine, "GET", "/").body.decode()
    assert "<script" not in page
    assert page.count("&lt;script&gt;") == 6  # model and reason twice, version, error


def test_several_engines_have_a_line_each() -> None:
    engine = FakeEngine()
    engine.results["get_status"] = [ENGINE, {**ENGINE, "engine_index": 1, "state": "paused"}]
    assert len(call(engine, "GET", "/status.json").json()["engines"]) == 2
    assert "paused" in call(engine, "GET", "/").body.decode()


def test_without_metrics_it_says_so() -> None:
    engine = FakeEngine()
    engine.metrics = [Exposition(content_type="application/x-other", body=b"\xff")]
    assert call(engine, "GET", "/status.json").json()["finished"] is None
    assert "prometheus" in call(engine, "GET", "/").body.decode()


def test_a_dead_engine_is_shown() -> None:
    engine = FakeEngine()
    engine.state = EngineHealth(live=False, ready=False, reason="it was killed")
    engine.results["get_status"] = EngineDeadError("it was killed")
    reply = call(engine, "GET", "/status.json")
    assert (reply.status, reply.json()["engines"]) == (200, [])
    assert reply.json()["engines_error"] == "it was killed"
    assert "a/model: dead (it was killed)" in call(engine, "GET", "/").body.decode()


def test_an_engine_that_is_stuck_does_not_hold_it_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status, "COMMAND_S", 0.01)
    engine = FakeEngine()
    engine.stuck = True
    assert "no answer" in call(engine, "GET", "/status.json").json()["engines_error"]


def test_the_prefix_cache_is_reset() -> None:
    engine = FakeEngine()
    reply = call(engine, "POST", "/reset-prefix-cache", JSON)
    assert (reply.status, reply.json()) == (200, {"result": True})
    assert engine.commands == [("reset_prefix_cache", {})]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InvalidRequestError("wrong"), 400),
        (CommandError("it sleeps"), 409),
        (EngineDeadError("gone"), 503),
        (EngineUnavailableError("later"), 503),
        (InternalError("a defect"), 500),
    ],
)
def test_what_the_command_raises_is_the_answer(error: Exception, code: int) -> None:
    engine = FakeEngine()
    engine.results["reset_prefix_cache"] = error
    reply = call(engine, "POST", "/reset-prefix-cache", JSON)
    assert (reply.status, reply.json()) == (code, {"error": str(error)})


@pytest.mark.parametrize("kind", [None, "text/plain", "application/x-www-form-urlencoded"])
def test_a_post_that_a_foreign_page_could_send_is_refused(kind: str | None) -> None:
    engine = FakeEngine()
    headers = {} if kind is None else {"content-type": kind}
    assert call(engine, "POST", "/reset-prefix-cache", headers).status == 415
    assert engine.commands == []


@pytest.mark.parametrize("path", ["", "/other", "/status.json/", "//", "/STATUS.JSON"])
def test_other_paths_are_not_found(path: str) -> None:
    reply = call(FakeEngine(), "GET", path)
    assert reply.status == 404
    assert "error" in reply.json()


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("POST", "/", "GET, HEAD"),
        ("DELETE", "/status.json", "GET, HEAD"),
        ("GET", "/reset-prefix-cache", "POST"),
        ("HEAD", "/reset-prefix-cache", "POST"),
    ],
)
def test_other_methods_are_not_allowed(method: str, path: str, allow: str) -> None:
    engine = FakeEngine()
    reply = call(engine, method, path, JSON)
    assert (reply.status, reply.headers["allow"]) == (405, allow)
    assert engine.commands == []


def test_head_is_get_without_the_body() -> None:
    engine = FakeEngine()
    got, head = call(engine, "GET", "/"), call(engine, "HEAD", "/")
    assert head == got._replace(body=b"")
    assert int(head.headers["content-length"]) == len(got.body)


def test_the_plugin_offers_one_application() -> None:
    (provider,) = plugin.register_http_routes()
    assert provider.target == f"{QueueDashboard.__module__}:{QueueDashboard.__name__}"
