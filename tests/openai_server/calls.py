"""Calls of the server over a FakeEngine: raw, through the OpenAI client, and as streams."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import httpx
import openai

from tests.openai_server.fakes import FakeEngine, client_for

__all__ = ["MODEL", "ask", "chunks_of", "post", "post_events"]

T = TypeVar("T")
MODEL = "fake/model"


def ask(engine: FakeEngine, use: Callable[[openai.AsyncOpenAI], Awaitable[T]]) -> T:
    """What `use` makes of an OpenAI client."""

    async def main() -> T:
        async with client_for(engine) as client_of_tests:
            http: Any = client_of_tests
            client = openai.AsyncOpenAI(
                api_key="none", base_url="http://localhost/v1", http_client=http, max_retries=0
            )
            return await use(client)

    return asyncio.run(main())


def post(engine: FakeEngine, path: str, body: Any, **settings: Any) -> httpx.Response:
    """The answer to a JSON body, or to bytes as they are."""

    async def main() -> httpx.Response:
        async with client_for(engine, **settings) as http:
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            return await http.post(path, content=data, headers={"content-type": "application/json"})

    return asyncio.run(main())


def chunks_of(text: str) -> list[Any]:
    """The data of the events of a stream that ends with [DONE]."""
    events = text.split("\n\n")
    assert events.pop() == ""
    assert events.pop() == "data: [DONE]"
    return [json.loads(event.removeprefix("data: ")) for event in events]


def post_events(engine: FakeEngine, path: str, body: dict[str, Any]) -> list[Any]:
    """The chunks of a streamed answer."""
    response = post(engine, path, {**body, "stream": True})
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    return chunks_of(response.text)
