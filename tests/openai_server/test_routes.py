"""The routes that are not about generation."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from builtin_plugins.openai_server.limits import DETOKENIZE_TOKENS
from hookspecs.contracts.stats import Exposition
from hookspecs.errors import CommandError, EngineDeadError, InvalidRequestError
from hookspecs.types.control import EngineHealth
from tests.openai_server.fakes import INFO, FakeEngine, client_for

pytestmark = pytest.mark.anyio


async def test_models_are_listed_under_all_their_names() -> None:
    async with client_for(FakeEngine(), model_names=("small", "org/other")) as client:
        listed = (await client.get("/v1/models")).json()
        one = await client.get("/v1/models/org/other")
        unknown = await client.get("/v1/models/fake/model")
    assert listed["object"] == "list"
    assert [card["id"] for card in listed["data"]] == ["small", "org/other"]
    assert one.json() == listed["data"][1]
    assert one.json()["max_model_len"] == INFO.max_model_len
    assert one.json()["created"] == INFO.started_at
    assert unknown.status_code == 404
    assert unknown.json()["error"]["code"] == "model_not_found"


async def test_the_configured_name_is_served_by_default() -> None:
    async with client_for(FakeEngine()) as client:
        assert (await client.get("/v1/models/fake%2Fmodel")).json()["id"] == "fake/model"


async def test_a_text_is_tokenized() -> None:
    async with client_for(FakeEngine()) as client:
        answer = await client.post("/tokenize", json={"prompt": "hé", "return_token_strs": True})
        plain = await client.post("/tokenize", json={"prompt": "", "model": "fake/model"})
    assert answer.json() == {
        "tokens": [104, 195, 169],
        "count": 3,
        "max_model_len": INFO.max_model_len,
        "token_strs": ["h", "\ufffd", "\ufffd"],
    }
    assert plain.json() == {"tokens": [], "count": 0, "max_model_len": INFO.max_model_len}


async def test_texts_of_more_tokens_than_fit_are_refused() -> None:
    longest = INFO.max_model_len
    async with client_for(FakeEngine()) as client:
        body = {"prompt": "a" * longest, "return_token_strs": True}
        fits = await client.post("/tokenize", json=body)
        body["prompt"] = "a" * (longest + 1)
        refused = await client.post("/tokenize", json=body)
        plain = await client.post("/tokenize", json={**body, "return_token_strs": False})
    assert fits.json()["token_strs"] == ["a"] * longest
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == "return_token_strs"
    assert plain.json()["count"] == longest + 1


async def test_others_get_their_turn_while_texts_are_made() -> None:
    engine = FakeEngine()
    begun, ended = asyncio.Event(), asyncio.Event()
    turns = 0

    def token_bytes(token_id: int) -> bytes:
        begun.set()
        return b"a"

    async def other() -> None:
        nonlocal turns
        await begun.wait()
        while not ended.is_set():
            turns += 1
            await asyncio.sleep(0)

    engine.token_bytes = token_bytes  # type: ignore[method-assign]
    beside = asyncio.create_task(other())
    async with client_for(engine) as client:
        body = {"prompt": "a" * INFO.max_model_len, "return_token_strs": True}
        assert (await client.post("/tokenize", json=body)).status_code == 200
    ended.set()
    await beside
    assert turns >= 3


async def test_a_conversation_is_tokenized_with_the_template() -> None:
    engine = FakeEngine()
    body = {
        "messages": [{"role": "user", "content": "hi"}],
        "add_generation_prompt": False,
        "tools": [{"type": "function"}],
        "chat_template_kwargs": {"thinking": False},
    }
    async with client_for(engine) as client:
        answer = (await client.post("/tokenize", json=body)).json()
    assert bytes(answer["tokens"]) == b"user: hi\n"
    assert engine.chats[0]["tools"] == [{"type": "function"}]
    assert engine.chats[0]["template_arguments"] == {"thinking": False}
    assert engine.chats[0]["add_generation_prompt"] is False


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/tokenize", {}, 400),
        ("/tokenize", {"prompt": "a", "messages": []}, 400),
        ("/tokenize", {"prompt": "a", "model": "other"}, 404),
        ("/tokenize", {"prompt": "a", "unknown": 1}, 400),
        ("/detokenize", {"tokens": [-1]}, 400),
        ("/detokenize", {"tokens": [INFO.vocab_size]}, 400),
        ("/detokenize", {"tokens": ["a"]}, 400),
        ("/detokenize", {"tokens": [1], "model": "other"}, 404),
        ("/detokenize", {"tokens": [1] * (DETOKENIZE_TOKENS.value + 1)}, 400),
    ],
)
async def test_wrong_tokenization_bodies_are_refused(
    path: str, body: dict[str, object], status: int
) -> None:
    async with client_for(FakeEngine()) as client:
        answer = await client.post(path, json=body)
    assert answer.status_code == status
    assert answer.json()["error"]["message"]


async def test_token_ids_are_made_text() -> None:
    async with client_for(FakeEngine()) as client:
        answer = await client.post("/detokenize", json={"tokens": [104, 195, 169]})
    assert answer.json() == {"prompt": "hé"}


async def test_health_tells_readiness_and_liveness_apart() -> None:
    engine = FakeEngine()
    async with client_for(engine, api_keys=("k",)) as client:

        async def states() -> list[tuple[int, str]]:
            paths = ("/health", "/health/ready", "/ping", "/health/live")
            answers = [await client.get(path) for path in paths]
            return [(answer.status_code, answer.json()["reason"]) for answer in answers]

        assert await states() == [(200, "")] * 4
        engine.state = EngineHealth(live=True, ready=False, reason="the engine sleeps")
        assert await states() == [(503, "the engine sleeps")] * 3 + [(200, "")]
        engine.state = EngineHealth(live=False, ready=False)
        assert await states() == [(503, "no reason is known")] * 4


async def test_metrics_of_all_loggers_are_joined() -> None:
    engine = FakeEngine()
    async with client_for(engine) as client:
        none = await client.get("/metrics")
        text = "text/plain; version=0.0.4"
        engine.metrics = [
            Exposition(content_type=text, body=b"a 1"),
            Exposition(content_type="application/other", body=b"{}"),
            Exposition(content_type=text, body=b"b 2\n"),
        ]
        joined = await client.get("/metrics")
    assert none.status_code == 404
    assert none.headers["content-type"].startswith("text/plain")
    assert joined.headers["content-type"] == text
    assert joined.text == "# left out, of another content type: application/other\na 1\nb 2\n"


async def test_versions_and_plugins_are_told() -> None:
    engine = FakeEngine()
    async with client_for(engine) as client:
        assert (await client.get("/version")).json() == {"version": "1.2.3", "api_version": "1.0"}
        assert (await client.get("/plugins")).json() == {"plugins": engine.plugin_list}


async def test_admin_routes_do_not_exist_unless_asked_for() -> None:
    engine = FakeEngine()
    async with client_for(engine) as client:
        assert (await client.post("/admin/pause", json={})).status_code == 404
        assert "/admin/pause" not in (await client.get("/openapi.json")).json()["paths"]
    assert engine.commands == []


async def test_admin_routes_run_commands() -> None:
    engine = FakeEngine()
    engine.results["get_status"] = [{"state": "running"}, {"state": "sleeping"}]
    posts: list[tuple[str, dict[str, object], dict[str, object]]] = [
        ("pause", {"mode": "wait"}, {"mode": "wait", "clear_cache": True}),
        ("resume", {}, {}),
        ("sleep", {"level": 2}, {"level": 2, "mode": "abort"}),
        ("wake_up", {"tags": ["weights"]}, {"tags": ("weights",)}),
        ("reset_prefix_cache", {}, {"preempt_running": False}),
        ("update_weights", {"path": "w", "version": "2"}, {"path": "w", "version": "2"}),
        ("drain", {"timeout_s": 1.5}, {"timeout_s": 1.5}),
        ("start_profile", {"directory": "d"}, {"directory": "d"}),
        ("stop_profile", {}, {}),
    ]
    async with client_for(engine, admin_routes=True) as client:
        for name, body, arguments in posts:
            answer = await client.post(f"/admin/{name}", json=body)
            assert answer.status_code == 200, answer.text
            assert engine.commands[-1][0] == name
            assert dict(engine.commands[-1][1]) == arguments
        status = await client.get("/admin/status")
        sleeping = await client.get("/admin/is_sleeping")
    assert status.json() == {"result": engine.results["get_status"]}
    assert sleeping.json() == {"is_sleeping": True}


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (CommandError("it sleeps already"), 409, "wrong_state"),
        (InvalidRequestError("level", param="level"), 400, None),
        (EngineDeadError("it is gone"), 503, "engine_dead"),
    ],
)
async def test_failures_of_commands_are_told(
    error: Exception, status: int, code: str | None
) -> None:
    engine = FakeEngine()
    engine.results["sleep"] = error
    async with client_for(engine, admin_routes=True) as client:
        answer = await client.post("/admin/sleep", json={})
    assert answer.status_code == status
    assert answer.json()["error"]["code"] == code
    assert answer.json()["error"]["message"] == str(error)


@pytest.mark.parametrize(
    "body", [{"level": 3}, {"level": "1"}, {"mode": "fast"}, {"levle": 1}, {"level": None}]
)
async def test_wrong_arguments_reach_no_engine(body: dict[str, object]) -> None:
    engine = FakeEngine()
    async with client_for(engine, admin_routes=True) as client:
        answer: httpx.Response = await client.post("/admin/sleep", json=body)
    assert answer.status_code == 400
    assert engine.commands == []
