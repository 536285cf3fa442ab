"""Clients that leave: what they asked for ends, and nothing else."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import httpx
import pytest

from tests.server.answers import answer_of, stream_of
from tests.server.asking import CHAT, COMPLETIONS, greedy, open_stream
from tests.server.conftest import VOCABULARY
from tests.server.process import Server, eventually

LONG = 2000
"""Tokens of an answer that nobody waits for."""


def long_body(path: str = COMPLETIONS, **fields: Any) -> dict[str, Any]:
    body = greedy([5, 6], LONG, **fields)
    if path == CHAT:
        del body["prompt"]
        body["messages"] = [{"role": "user", "content": "hi"}]
    return body


def eight_outputs() -> dict[str, Any]:
    even = {"scripted": {"logits": [[0.0] * VOCABULARY]}}
    return long_body(n=8, temperature=1, seed=1, extensions=even)


async def give_up(server: Server, body: dict[str, Any], path: str = COMPLETIONS) -> None:
    """Send a request that is not streamed, and close its connection once the engine has it."""
    async with httpx.AsyncClient(base_url=server.url, timeout=60) as client:
        task = asyncio.create_task(client.post(path, json=body))
        await until(server, lambda metrics: metrics["num_requests_running"] > 0)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def until(server: Server, holds: Any) -> None:
    """Read the metrics until something holds of them."""
    end = asyncio.get_running_loop().time() + 30
    while not holds(await server.current_metrics()):
        assert asyncio.get_running_loop().time() < end


def check_aborted(server: Server, before: dict[str, float], outputs: int) -> None:
    """So many outputs were aborted, long before they would have ended."""
    eventually(server.idle, "what was given up goes on")
    after = server.metrics()
    assert after["requests_total:abort"] - before["requests_total:abort"] == outputs
    assert after["requests_total:length"] == before["requests_total:length"]
    made = after["generation_tokens_total"] - before["generation_tokens_total"]
    assert made < LONG * outputs


@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
def test_a_stream_that_is_closed_ends(scripted: Server, path: str) -> None:
    """After its first chunk: blocks come back, and the abort is counted."""
    before = scripted.metrics()

    async def leave() -> None:
        async with open_stream(scripted, long_body(path), path) as events:
            await anext(events)

    scripted.run(leave())
    check_aborted(scripted, before, 1)


@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
def test_a_call_without_stream_that_is_closed_ends(scripted: Server, path: str) -> None:
    """While it runs: as a stream."""
    before = scripted.metrics()
    scripted.run(give_up(scripted, long_body(path), path))
    check_aborted(scripted, before, 1)


@pytest.mark.parametrize("streamed", [False, True])
def test_all_outputs_of_a_call_end_with_it(scripted: Server, streamed: bool) -> None:
    """Eight outputs of one prompt."""
    before = scripted.metrics()

    async def leave() -> None:
        async with open_stream(scripted, eight_outputs()) as events:
            await anext(events)

    scripted.run(leave() if streamed else give_up(scripted, eight_outputs()))
    check_aborted(scripted, before, 8)


def test_calls_that_are_closed_while_they_are_submitted_leave_nothing(scripted: Server) -> None:
    """Closed as soon as they were sent, or a moment later."""

    async def send(turns: int) -> None:
        body = {**eight_outputs(), "prompt": [[1, 2]] * 8}
        async with httpx.AsyncClient(base_url=scripted.url, timeout=60) as client:
            task = asyncio.create_task(client.post(COMPLETIONS, json=body))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def send_all() -> None:
        for turns in range(0, 40, 4):
            await send(turns)

    scripted.run(send_all())
    eventually(scripted.idle, "what was given up goes on")


def test_a_storm_of_aborts_leaves_the_survivors_alone(tight: Server, plain: Any) -> None:
    """200 requests at four places, given up in the queue, in their prompt and in their output,
    several times over; four others are answered as alone."""

    async def doomed(i: int) -> None:
        body = greedy([1 + i] * (1 + i % 60), 60)
        with contextlib.suppress(httpx.HTTPError):
            async with open_stream(tight, body) as events:
                async for _ in events:
                    pass

    async def storm(rounds: int) -> None:
        for repeat in range(rounds):
            tasks = [asyncio.create_task(doomed(i)) for i in range(200)]
            prompts = [[3 + i] * (2 + 9 * i) for i in range(4)]
            posted = [
                asyncio.create_task(
                    tight.client.post(
                        COMPLETIONS, json={**greedy(prompt, 9), "return_token_ids": True}
                    )
                )
                for prompt in prompts
            ]
            await asyncio.wait(tasks, timeout=0.02 * repeat)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for prompt, response in zip(prompts, await asyncio.gather(*posted), strict=True):
                assert answer_of(response).only.token_ids == plain(prompt, 9)

    tight.run(storm(6))
    eventually(tight.idle, "what was given up goes on")


def test_requests_of_one_id_are_told_apart(scripted: Server, plain: Any) -> None:
    """Clients may send one x-request-id several times, also while the first is being given up:
    each gets its own answer and its id back."""
    headers = {"x-request-id": "again"}

    async def ask() -> None:
        for repeat in range(10):
            async with open_stream(scripted, greedy([9] * 40, LONG), headers=headers) as events:
                await anext(events)
            async with open_stream(scripted, greedy([3 + repeat, 5], 9), headers=headers) as events:
                lines = [line async for line in events]
            assert stream_of(lines).only.token_ids == plain([3 + repeat, 5], 9)
        bodies = [{**greedy([20 + i], 30), "return_token_ids": True} for i in range(8)]
        posted = [scripted.client.post(COMPLETIONS, json=b, headers=headers) for b in bodies]
        for i, response in enumerate(await asyncio.gather(*posted)):
            assert response.headers["x-request-id"] == "again"
            assert answer_of(response).only.token_ids == plain([20 + i], 30)

    scripted.run(ask())


def test_numbers_add_up_after_aborts(scripted: Server) -> None:
    """Outputs by reason are all outputs; tokens by request are all tokens of those that were
    given; nothing is running, waiting or cached for anybody."""
    before = scripted.metrics()

    async def leave(tokens: int) -> None:
        async with open_stream(scripted, long_body()) as events:
            for _ in range(tokens):
                await anext(events)

    async def leave_all() -> None:
        await asyncio.gather(*(leave(1 + i) for i in range(12)))

    scripted.run(leave_all())
    for length in (3, 5):
        scripted.post(COMPLETIONS, greedy([5], length))
    eventually(scripted.idle, "what was given up goes on")
    after = scripted.metrics()
    grown = {name: value - before[name] for name, value in after.items()}
    assert grown["requests_total:abort"] == 12
    assert grown["requests_total:length"] == 2
    assert grown["e2e_request_latency_seconds_count"] == 14
    assert grown["request_generation_tokens_sum"] == grown["generation_tokens_total"]
    assert grown["request_prompt_tokens_sum"] == grown["prompt_tokens_total"]
    assert grown["generation_tokens_total"] >= 3 + 5 + sum(1 + i for i in range(12))
