"""Pages of other sites can not read a keyless server on a loopback address (DNS rebinding)."""

from __future__ import annotations

import httpx
import pytest

from builtin_plugins.openai_server.app import build_app
from tests.openai_server.fakes import FakeEngine, context_for, serving

pytestmark = pytest.mark.anyio
NAMES = ["localhost", "LocalHost", "127.0.0.1", "127.9.8.7", "[::1]"]
OTHERS = [
    "attacker.example",
    "localhost.attacker.example",
    "127.0.0.1.attacker.example",
    "localhost@attacker.example",
    "192.168.0.1",
    "0.0.0.0",
    "[::2]",
    "::1",
    "",
    "localhost:x",
    "localhost:1:2",
]


async def ask(path: str, named: str, **settings: object) -> httpx.Response:
    context = context_for(FakeEngine(), **settings)  # type: ignore[arg-type]
    transport = httpx.ASGITransport(build_app(context, context.options))
    async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
        return await client.get(path, headers={"host": named})


@pytest.mark.parametrize("port", ["", ":8000", ":"])
@pytest.mark.parametrize("name", NAMES)
async def test_names_of_this_machine_are_served(name: str, port: str) -> None:
    assert (await ask("/version", name + port)).status_code == 200


@pytest.mark.parametrize("path", ["/version", "/health", "/nope", "/v1/messages", "/plugins/x"])
@pytest.mark.parametrize("host", OTHERS)
async def test_other_names_are_403(host: str, path: str) -> None:
    answer = await ask(path, host)
    assert answer.status_code == 403
    assert "serving.api_keys" in answer.json()["error"]["message"]
    assert answer.headers["x-request-id"]


@pytest.mark.parametrize(
    "settings",
    [{"api_keys": ("k",)}, {"host": "0.0.0.0"}, {"host": "::"}, {"host": "192.168.0.5"}],
)
async def test_names_do_not_matter_elsewhere(settings: dict[str, object]) -> None:
    assert (await ask("/health", "my.example", **settings)).status_code == 200


async def test_the_configured_name_is_served() -> None:
    assert (await ask("/version", "[::1]:80", host="::1")).status_code == 200
    assert (await ask("/version", "LOCALHOST", host="localhost")).status_code == 200


async def test_over_a_connection() -> None:
    async with serving(FakeEngine()) as client:
        assert (await client.get("/version")).status_code == 200
        refused = await client.get("/version", headers={"host": "attacker.example"})
    assert refused.status_code == 403
