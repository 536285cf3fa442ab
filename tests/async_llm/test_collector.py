"""What a slow consumer gets: the same in fewer outputs."""

from __future__ import annotations

import asyncio
import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from framework import CompletionOutput, Logprob, RequestOutput
from framework.frontend.collector import Collector
from hookspecs.errors import EngineDeadError
from tests.async_llm.engines import joined

NUM_OUTPUTS = 3


@st.composite
def deltas(draw: st.DrawFn) -> list[RequestOutput]:
    """Deltas of a request with several outputs, of which some have news each time."""
    with_logprobs = draw(st.booleans())
    made: list[RequestOutput] = []
    for number in range(draw(st.integers(1, 12))):
        indexes = draw(st.sets(st.integers(0, NUM_OUTPUTS - 1), min_size=1))
        parts = []
        for index in sorted(indexes):
            tokens = draw(st.lists(st.integers(0, 9), max_size=3))
            parts.append(
                CompletionOutput(
                    index=index,
                    text=draw(st.text(max_size=3)),
                    token_ids=tokens,
                    logprobs=[{token: Logprob(-1.0, 1)} for token in tokens]
                    if with_logprobs
                    else None,
                    cumulative_logprob=-float(number) if with_logprobs else None,
                )
            )
        made.append(
            RequestOutput(
                request_id="a",
                prompt=None,
                prompt_token_ids=[1],
                outputs=parts,
                finished=False,
                prompt_logprobs=[None] if number == 0 else None,
                num_cached_tokens=number,
            )
        )
    made[-1].finished = True
    for part in made[-1].outputs:
        part.finish_reason, part.stop_reason = "stop", 7
    return made


@given(deltas(), st.lists(st.booleans(), max_size=12))
def test_any_interleaving_brings_the_same(outputs: list[RequestOutput], reads: list[bool]) -> None:
    before = copy.deepcopy(outputs)

    async def body() -> list[RequestOutput]:
        collector, seen = Collector(delta=True), []
        for number, output in enumerate(outputs):
            collector.put(output)
            if number < len(reads) and reads[number]:
                seen.append(await collector.get())
        if not seen or not seen[-1].finished:
            seen.append(await collector.get())
        return seen

    seen = asyncio.run(body())
    for index in range(NUM_OUTPUTS):
        assert joined(seen, index) == joined(before, index)
    assert [output.finished for output in seen] == [False] * (len(seen) - 1) + [True]
    assert [each.prompt_logprobs for each in seen if each.prompt_logprobs] == [[None]]
    assert seen[-1].num_cached_tokens == before[-1].num_cached_tokens
    for output in seen:
        assert [part.index for part in output.outputs] == sorted(
            {part.index for part in output.outputs}
        )
    # Plugins may have kept what they were shown.
    assert outputs == before


@given(deltas())
def test_what_is_not_delta_is_replaced(outputs: list[RequestOutput]) -> None:
    async def body() -> RequestOutput:
        collector = Collector(delta=False)
        for output in outputs:
            collector.put(output)
        return await collector.get()

    assert asyncio.run(body()) is outputs[-1]


def test_an_error_comes_after_what_was_put() -> None:
    async def body() -> None:
        collector = Collector(delta=True)
        output = RequestOutput(
            request_id="a", prompt=None, prompt_token_ids=[], outputs=[], finished=False
        )
        waiting = asyncio.create_task(collector.get())
        await asyncio.sleep(0)
        collector.put(output)
        assert await waiting is output
        collector.put(output)
        collector.fail(EngineDeadError("gone"))
        assert await collector.get() is output
        for _ in range(2):
            with pytest.raises(EngineDeadError, match="gone"):
                await collector.get()

    asyncio.run(body())
