"""A completion as a stream of chunks."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any

from builtin_plugins.openai_server.chunks import ChunkWriter, Envelope
from builtin_plugins.openai_server.completion_choices import (
    ChoiceBuilder,
    drop_output,
    only_scores,
)
from builtin_plugins.openai_server.completion_types import CompletionBody, CompletionChoice
from builtin_plugins.openai_server.generation import Job, generate
from builtin_plugins.openai_server.sse import Event
from builtin_plugins.openai_server.usage import UsageCounter

__all__ = ["completion_events"]


async def completion_events(
    job: Job, prompts: Sequence[Any], body: CompletionBody, envelope: Envelope
) -> AsyncGenerator[Event, None]:
    """Encoded chunks. Raises as `generate`, before the first chunk or after any."""
    n = job.params.n
    builder = ChoiceBuilder(job.service.engine, body, n=n)
    writer = ChunkWriter(envelope, null_usage=body.includes_usage)
    counter = UsageCounter()
    texts: dict[int, Callable[[str], bytes]] = {}
    if body.logprobs is None and not body.return_token_ids and not body.repeats_usage:
        for index in range(len(prompts) * n):
            texts[index] = writer.texts(partial(_text_choice, index))
    scores = only_scores(body)
    opened: set[int] = set()
    async with aclosing(generate(job, prompts)) as outputs:
        async for prompt_index, output in outputs:
            if scores:
                drop_output(output)
            counter.add(prompt_index, output)
            usage = counter.usage() if body.repeats_usage else None
            chunks = []
            if builder.has_openings and prompt_index not in opened:
                opened.add(prompt_index)
                openings = await builder.openings(prompt_index, output)
                chunks += [writer.chunk(choice, usage) for choice in openings]
            for completion in output.outputs:
                index = prompt_index * n + completion.index
                if completion.finish_reason is None and texts:
                    if completion.text:
                        chunks.append(texts[index](completion.text))
                    continue
                choice = builder.choice(index, completion)
                if not _is_empty(choice):
                    chunks.append(writer.chunk(choice, usage))
            if chunks:
                yield b"".join(chunks)
    if body.includes_usage:
        yield writer.usage(counter.usage())


def _text_choice(index: int, text: str) -> CompletionChoice:
    return CompletionChoice(index=index, text=text)


def _is_empty(choice: CompletionChoice) -> bool:
    return not (
        choice.text
        or choice.finish_reason
        or choice.token_ids
        or (choice.logprobs and choice.logprobs.tokens)
    )
