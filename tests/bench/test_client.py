"""The client of the load generator."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from framework.bench.client import Client
from hookspecs.errors import TransportError
from tests.cli.scripted_http import CLOSE, Call, answer, running


def test_a_kept_connection_that_was_closed_meanwhile_is_replaced() -> None:
    """A server closes idle connections when it likes, also just before the next request."""
    calls = 0

    def script(call: Call) -> list[object]:
        nonlocal calls
        calls += 1
        # The second request finds its connection closed, and comes again over a new one.
        return [CLOSE] if calls == 2 else list(answer({"number": calls}))

    async def main(url: str) -> None:
        client = Client(url, None, 60)
        assert msgspec.json.decode(await client.get("/v1/models")) == {"number": 1}
        assert msgspec.json.decode(await client.get("/v1/models")) == {"number": 3}
        client.close()

    with running(script) as server:
        asyncio.run(main(server.url))


def test_a_new_connection_that_is_closed_is_an_error() -> None:
    async def main(url: str) -> None:
        with pytest.raises(TransportError, match="before the answer"):
            await Client(url, None, 60).get("/v1/models")

    with running(lambda call: [CLOSE]) as server:
        asyncio.run(main(server.url))
        assert len(server.calls) == 1
