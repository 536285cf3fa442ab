"""Request ids, API keys and CORS."""

from __future__ import annotations

import logging

import pytest

from tests.openai_server.fakes import FakeEngine, client_for

pytestmark = pytest.mark.anyio
KEYS = ("first-key", "zweiter-schlüssel")


@pytest.mark.parametrize("given", ["a", "A-b_c.9", "x" * 128])
async def test_a_good_request_id_is_kept(given: str) -> None:
    async with client_for(FakeEngine()) as client:
        answer = await client.get("/health", headers={"x-request-id": given})
    assert answer.headers["x-request-id"] == given


@pytest.mark.parametrize("given", ["", "x" * 129, "a b", "a\tb", "é", "a/b", "a,b"])
async def test_a_bad_request_id_is_replaced(given: str) -> None:
    async with client_for(FakeEngine()) as client:
        headers = {b"x-request-id": given.encode()}
        ids = {
            (await client.get("/health", headers=headers)).headers["x-request-id"] for _ in range(3)
        }
    assert len(ids) == 3
    assert given not in ids


async def test_every_answer_has_a_request_id() -> None:
    async with client_for(
        FakeEngine(), api_keys=KEYS, cors_origins=("https://a.example",)
    ) as client:
        preflight = {"origin": "https://a.example", "access-control-request-method": "POST"}
        for answer in (
            await client.get("/nope"),
            await client.get("/health"),
            await client.options("/tokenize", headers=preflight),
        ):
            assert answer.headers["x-request-id"]


@pytest.mark.parametrize(
    "headers",
    [
        {"authorization": "Bearer first-key"},
        {"authorization": "bearer  first-key "},
        {"x-api-key": "first-key"},
        {"x-api-key": "zweiter-schlüssel"},
        {"authorization": "Basic abc", "x-api-key": "first-key"},
        {"authorization": "Bearer none", "x-api-key": "first-key"},
    ],
)
async def test_a_key_opens(headers: dict[str, str]) -> None:
    async with client_for(FakeEngine(), api_keys=KEYS) as client:
        raw = {name.encode(): value.encode() for name, value in headers.items()}
        assert (await client.get("/version", headers=raw)).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": "Bearer "},
        {"authorization": "Bearer"},
        {"authorization": "first-key"},
        {"authorization": "Basic first-key"},
        {"authorization": "Bearer first-ke"},
        {"authorization": "Bearer first-key2"},
        {"x-api-key": ""},
        {"x-api-key": "First-Key"},
    ],
)
@pytest.mark.parametrize(
    "path", ["/version", "/nope", "/plugins/hello/", "/plugins/none/", "/openapi.json", "/metrics"]
)
async def test_without_a_key_nothing_can_be_told_apart(path: str, headers: dict[str, str]) -> None:
    async def mounted(scope: object, receive: object, send: object) -> None:
        raise AssertionError("not reached")

    async with client_for(FakeEngine(), api_keys=KEYS, routes={"hello": mounted}) as client:
        answers = [
            await client.get(path, headers=headers),
            await client.post(path, headers=headers, content=b"x"),
            await client.options(path, headers=headers),
        ]
    for answer in answers:
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"] == "Bearer"
        assert answer.json()["error"]["code"] == "invalid_api_key"
        assert answer.content == answers[0].content


@pytest.mark.parametrize("name", ["x-api-key", "authorization"])
async def test_an_empty_key_is_none_though_it_were_configured(name: str) -> None:
    """Configurations refuse it; the server does not rely on that."""
    async with client_for(FakeEngine(), api_keys=("", "k")) as client:
        for value in ("", "Bearer", "Bearer ", "Bearer  "):
            answer = await client.get("/version", headers={name: value})
            assert answer.status_code == 401


async def test_health_needs_no_key() -> None:
    async with client_for(FakeEngine(), api_keys=KEYS) as client:
        for path in ("/health", "/health/ready", "/health/live", "/ping"):
            assert (await client.get(path)).status_code == 200
            assert (await client.get(path + "/")).status_code == 401


async def test_keys_and_queries_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "framework.openai")
    async with client_for(FakeEngine(), api_keys=KEYS) as client:
        await client.get("/version?key=first-key", headers={"x-api-key": "wrong-key"})
        await client.get("/version?key=first-key", headers={"x-api-key": "first-key"})
    messages = [r.getMessage() for r in caplog.records if r.name == "framework.openai"]
    assert len(messages) == 2
    assert "401" in messages[0] and "'/version'" in messages[0]
    assert "200" in messages[1]
    assert not any("-key" in message for message in messages)


async def test_pages_of_allowed_origins_may_call_and_preflights_need_no_key() -> None:
    origin = "https://a.example"
    preflight = {
        "origin": origin,
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization, content-type, x-stainless-os",
    }
    async with client_for(FakeEngine(), api_keys=KEYS, cors_origins=(origin,)) as client:
        asked = await client.options("/v1/models", headers=preflight)
        refused = await client.get("/v1/models", headers={"origin": origin})
        other = await client.options(
            "/v1/models", headers={**preflight, "origin": "https://b.example"}
        )
        options = await client.options("/v1/models", headers={"origin": origin})
    assert asked.status_code == 200
    assert asked.headers["access-control-allow-origin"] == origin
    assert "x-stainless-os" in asked.headers["access-control-allow-headers"]
    assert refused.status_code == 401
    assert refused.headers["access-control-allow-origin"] == origin
    assert "x-request-id" in refused.headers["access-control-expose-headers"]
    assert other.status_code == 400
    assert "access-control-allow-origin" not in other.headers
    assert options.status_code == 401


async def test_no_origin_is_allowed_by_default() -> None:
    async with client_for(FakeEngine()) as client:
        answer = await client.get("/version", headers={"origin": "https://a.example"})
    assert "access-control-allow-origin" not in answer.headers
