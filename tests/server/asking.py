"""Asking a scripted server, alone or beside ordinary requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from tests.server.answers import Answer, answer_of, stream_of
from tests.server.process import Server

__all__ = ["CHAT", "COMPLETIONS", "Ask", "Form", "greedy", "open_stream", "says"]

COMPLETIONS = "/v1/completions"
CHAT = "/v1/chat/completions"
NEIGHBOURS = ([7, 8, 9], [7, 8, 10, 11], [4] * 20)
NEIGHBOUR_TOKENS = 30


@dataclass(frozen=True)
class Form:
    """How a request is asked."""

    streamed: bool
    among_others: bool


class Ask:
    """Asks in one form. Token ids are always wanted, and no answer may have status 5xx."""

    def __init__(self, form: Form, plain: Callable[[list[int], int], list[int]]) -> None:
        self.form = form
        self._plain = plain

    def __call__(
        self,
        server: Server,
        body: dict[str, Any],
        path: str = COMPLETIONS,
        *,
        failing: bool = False,
        headers: dict[str, str] | None = None,
    ) -> Answer:
        """The answer. `failing`: it may have a status of 5xx."""
        return server.run(self._ask(server, body, path, failing, headers))

    async def _ask(
        self,
        server: Server,
        body: dict[str, Any],
        path: str,
        failing: bool,
        headers: dict[str, str] | None,
    ) -> Answer:
        whole = {"return_token_ids": True, **body, "stream": self.form.streamed}
        async with self._neighbours(server):
            answer = answer_of(await server.client.post(path, json=whole, headers=headers))
        assert answer.status < 500 or failing, answer.error
        assert answer.done == (self.form.streamed and answer.status == 200)
        return answer

    @asynccontextmanager
    async def _neighbours(self, server: Server) -> AsyncIterator[None]:
        """Three requests that have begun, and end as they would alone."""
        if not self.form.among_others:
            yield
            return
        begun = [asyncio.Event() for _ in NEIGHBOURS]
        tasks = [
            asyncio.create_task(self._neighbour(server, prompt, event))
            for prompt, event in zip(NEIGHBOURS, begun, strict=True)
        ]
        await asyncio.gather(*(event.wait() for event in begun))
        yield
        for prompt, tokens in zip(NEIGHBOURS, await asyncio.gather(*tasks), strict=True):
            assert tokens == self._plain(prompt, NEIGHBOUR_TOKENS)

    async def _neighbour(
        self, server: Server, prompt: list[int], begun: asyncio.Event
    ) -> list[int]:
        lines = []
        try:
            async with open_stream(server, greedy(prompt, NEIGHBOUR_TOKENS)) as events:
                async for line in events:
                    begun.set()
                    lines.append(line)
        finally:
            begun.set()
        return stream_of(lines).only.token_ids


@asynccontextmanager
async def open_stream(
    server: Server,
    body: dict[str, Any],
    path: str = COMPLETIONS,
    headers: dict[str, str] | None = None,
) -> AsyncIterator[AsyncIterator[str]]:
    """The events of a stream as they come; it is given up when the block is left early."""
    whole = {"return_token_ids": True, **body, "stream": True}
    async with server.client.stream("POST", path, json=whole, headers=headers) as response:
        assert response.status_code == 200, await response.aread()
        yield (line async for line in response.aiter_lines() if line)


def greedy(prompt: Any, max_tokens: int, **fields: Any) -> dict[str, Any]:
    """A body that asks the scripted model for exactly so many tokens."""
    return {
        "prompt": prompt,
        "max_tokens": max_tokens,
        "temperature": 0,
        "ignore_eos": True,
        **fields,
    }


def says(tokens: list[int], **fields: Any) -> dict[str, Any]:
    """A body to which the scripted model answers these tokens and its end."""
    return {
        "prompt": "abc",
        "temperature": 0,
        "max_tokens": 100,
        "extensions": {"scripted": {"tokens": tokens}},
        **fields,
    }
