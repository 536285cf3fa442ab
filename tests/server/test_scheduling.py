"""Many requests in a small cache: nobody loses anything by it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.server.answers import Answer, answer_of, stream_of
from tests.server.asking import COMPLETIONS, Ask, greedy, open_stream
from tests.server.process import Server


async def post(server: Server, body: dict[str, Any]) -> Answer:
    whole = {"return_token_ids": True, **body}
    return answer_of(await server.client.post(COMPLETIONS, json=whole))


async def stream(server: Server, body: dict[str, Any], begun: asyncio.Event) -> Answer:
    lines = []
    async with open_stream(server, body) as events:
        async for line in events:
            lines.append(line)
            begun.set()
    return stream_of(lines)


def at_once(server: Server, bodies: list[dict[str, Any]]) -> list[list[int]]:
    """The tokens that all of them get when they are sent together."""

    async def send() -> list[Answer]:
        return await asyncio.gather(*(post(server, body) for body in bodies))

    return [answer.only.token_ids for answer in server.run(send())]


@pytest.mark.parametrize("arrives_after", [1, 20, 50])
def test_an_urgent_request_among_growing_ones(
    tight: Server, plain: Any, arrives_after: int
) -> None:
    """Those that give up their blocks for it are finished later, with the same output."""
    before = tight.metrics()["num_preemptions_total"]
    prompts = [[3 + i] * 5 for i in range(3)]

    async def send() -> tuple[Answer, list[Answer]]:
        begun = [asyncio.Event() for _ in prompts]
        tasks = [
            asyncio.create_task(stream(tight, greedy(prompt, 90, priority=5), event))
            for prompt, event in zip(prompts, begun, strict=True)
        ]
        await asyncio.gather(*(event.wait() for event in begun))
        urgent = await post(tight, greedy([9] * 40, arrives_after, priority=-5))
        return urgent, await asyncio.gather(*tasks)

    urgent, others = tight.run(send())
    assert urgent.only.token_ids == plain([9] * 40, arrives_after)
    for prompt, answer in zip(prompts, others, strict=True):
        assert answer.only.token_ids == plain(prompt, 90)
    assert tight.metrics()["num_preemptions_total"] > before


@pytest.mark.parametrize("logprobs", [None, 1])
def test_eight_requests_in_a_cache_for_two(tight: Server, plain: Any, logprobs: int | None) -> None:
    """Each is answered as in a cache for all, though some are preempted."""
    before = tight.metrics()["num_preemptions_total"]
    prompts = [[3 + i % 3] * 6 + [i] for i in range(8)]
    bodies = [greedy(prompt, 80, logprobs=logprobs) for prompt in prompts]
    for _ in range(2):
        assert at_once(tight, bodies) == [plain(prompt, 80) for prompt in prompts]
    assert tight.metrics()["num_preemptions_total"] > before


def test_twenty_prompts_alone_and_at_once(tight: Server, scripted: Server, plain: Any) -> None:
    """Token for token the same, in a small and in a large cache."""
    prompts = [[3 + i * j % 50 for j in range(1, 3 + 2 * i)] for i in range(20)]
    bodies = [greedy(prompt, 16) for prompt in prompts]
    expected = [plain(prompt, 16) for prompt in prompts]
    assert [at_once(tight, [body])[0] for body in bodies] == expected
    assert at_once(tight, bodies) == expected
    assert at_once(scripted, bodies) == expected


@pytest.mark.parametrize("logprobs", [None, 2])
def test_chunk_and_block_boundaries(
    tight: Server, ask: Ask, plain: Any, logprobs: int | None
) -> None:
    """Prompts that end at, before and after a block of 16 and a step of 32 tokens, cold and
    cached; a whole prompt is never a hit, because its last token is computed."""
    for length in (15, 16, 17, 31, 32, 33, 63, 64, 65):
        prompt = [3 + i * i % 90 for i in range(length)]
        body = greedy(prompt, 5, logprobs=logprobs, cache_salt=f"{length} {logprobs} {ask.form}")
        if ask.form.streamed:
            body["stream_options"] = {"include_usage": True}
        cold, cached = ask(tight, body), ask(tight, body)
        assert cold.only.token_ids == cached.only.token_ids == plain(prompt, 5)
        assert cold.only.logprobs == cached.only.logprobs
        assert cold.usage is not None and cached.usage is not None
        assert cold.usage["prompt_tokens_details"]["cached_tokens"] == 0
        hit = cached.usage["prompt_tokens_details"]["cached_tokens"]
        assert hit % 16 == 0
        assert hit < length
        if not ask.form.among_others:
            assert hit == (length - 1) // 16 * 16


def test_a_request_that_expires_in_the_queue_costs_nothing(
    tight: Server, streamed: bool, plain: Any
) -> None:
    """It is told so by a status of its own, streamed or not, and no token of it is computed."""
    before = tight.metrics()
    prompts = [[3 + i] for i in range(12)]

    async def send() -> tuple[Answer, list[Answer]]:
        begun = asyncio.Event()
        running = [
            asyncio.create_task(stream(tight, greedy(prompt, 100), begun)) for prompt in prompts
        ]
        await begun.wait()
        late = greedy([6] * 30, 6, deadline_ms=1, priority=9, stream=streamed)
        return await post(tight, late), await asyncio.gather(*running)

    late, others = tight.run(send())
    assert late.status == 504
    assert late.error is not None
    assert (late.error["type"], late.error["code"]) == ("timeout_error", "deadline_exceeded")
    for prompt, answer in zip(prompts, others, strict=True):
        assert answer.only.token_ids == plain(prompt, 100)
    after = tight.metrics()
    assert after["requests_total:timeout"] - before["requests_total:timeout"] == 1
    assert after["prompt_tokens_total"] - before["prompt_tokens_total"] == len(prompts)
