"""The client of the load generator."""

from __future__ import annotations

import asyncio

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

    async def main() -> None:
        with running(script) as server:
            client = Client(server.url, None)
            assert await client.get("/v1/models") == b'{"number": 1}'
            assert await client.get("/v1/models") == b'{"number": 3}'
            client.close()

    asyncio.run(main())


def test_a_new_connection_that_is_closed_is_an_error() -> None:
    async def main() -> None:
        with running(lambda call: [CLOSE]) as server:
            client = Client(server.url, None)
            with pytest.raises(TransportError, match="before the answer"):
                await client.get("/v1/models")
            assert len(server.calls) == 1

    asyncio.run(main())
