"""Calls of a server of this folder."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from typing import Any

import httpx

from tests.processes.launches import PATIENCE_S

__all__ = ["Stream", "complete", "health", "metric", "open_stream"]


def _body(max_tokens: int, **fields: Any) -> dict[str, Any]:
    return {
        "model": "scripted",
        "prompt": [1, 2, 3],
        "max_tokens": max_tokens,
        "temperature": 0,
        "ignore_eos": True,
        "return_token_ids": True,
        **fields,
    }


def complete(address: str, max_tokens: int = 3, *, headers: Any = None) -> httpx.Response:
    """A completion, on a connection of its own. Tried again when a front end that ends had
    accepted it."""
    while True:
        try:
            return httpx.post(
                f"{address}/v1/completions",
                json=_body(max_tokens),
                timeout=PATIENCE_S,
                headers=headers,
            )
        except (httpx.ReadError, httpx.RemoteProtocolError):
            continue


async def health(client: httpx.AsyncClient, address: str) -> int:
    """The status of `/health`; 0 when its front end ended meanwhile."""
    try:
        return (await client.get(f"{address}/health")).status_code
    except (httpx.ReadError, httpx.RemoteProtocolError):
        return 0


class Stream:
    """A streamed completion, begun: its first chunk has come."""

    def __init__(self, response: httpx.Response, lines: AsyncGenerator[str, None]) -> None:
        self._response = response
        self._lines = lines

    async def end(self) -> dict[str, Any]:
        """Reads it to its end: the last finish reason, the error, and whether it was ended as
        the protocol says."""
        found: dict[str, Any] = {"finish_reason": None, "error": None, "done": False, "chunks": 0}
        try:
            async for line in self._lines:
                if line == "data: [DONE]":
                    found["done"] = True
                elif line.startswith("data: "):
                    chunk = json.loads(line.removeprefix("data: "))
                    found["chunks"] += 1
                    found["error"] = chunk.get("error", found["error"])
                    for choice in chunk.get("choices", ()):
                        found["finish_reason"] = choice["finish_reason"] or found["finish_reason"]
        except httpx.TransportError as error:
            found["error"] = repr(error)
        return found

    async def close(self) -> None:
        """Goes away."""
        await self._response.aclose()


async def open_stream(client: httpx.AsyncClient, address: str, max_tokens: int) -> Stream:
    """Begins a streamed completion and waits for its first chunk."""
    request = client.build_request(
        "POST", f"{address}/v1/completions", json=_body(max_tokens, stream=True)
    )
    response = await client.send(request, stream=True)
    assert response.status_code == 200, await response.aread()
    lines = response.aiter_lines()
    assert (await anext(lines)).startswith("data: ")
    return Stream(response, lines)  # type: ignore[arg-type]


def metric(address: str, name: str) -> float:
    """The sum of a metric's values over its labels."""
    text = httpx.get(f"{address}/metrics", timeout=PATIENCE_S).text
    values = [
        float(line.rsplit(" ", 1)[1])
        for line in text.splitlines()
        if line.startswith((f"{name} ", f"{name}{{"))
    ]
    assert values, f"no {name} in {text}"
    return sum(values)
