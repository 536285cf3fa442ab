"""A chat completion as a stream of chunks."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial
from typing import Any

from msgspec import UNSET

from builtin_plugins.openai_server.chat_types import ChatBody, ChunkChoice, Delta
from builtin_plugins.openai_server.chunks import ChunkWriter, Envelope
from builtin_plugins.openai_server.generation import Job, generate
from builtin_plugins.openai_server.logprobs import chat_logprobs, prompt_logprobs
from builtin_plugins.openai_server.sse import Event
from builtin_plugins.openai_server.usage import UsageCounter
from hookspecs.contracts.frontend import EngineClient
from hookspecs.types.outputs import CompletionOutput, RequestOutput

__all__ = ["chat_events"]


async def chat_events(
    job: Job, prompt: Any, body: ChatBody, envelope: Envelope
) -> AsyncGenerator[Event, None]:
    """Encoded chunks. Raises as `generate`, before the first chunk or after any."""
    engine = job.service.engine
    writer = ChunkWriter(envelope, null_usage=body.includes_usage)
    counter = UsageCounter()
    indices = range(job.params.n)
    texts = [writer.texts(partial(_text_choice, index)) for index in indices]
    plain = not (body.logprobs or body.return_token_ids or body.repeats_usage)
    opened = False
    async with aclosing(generate(job, [prompt])) as outputs:
        async for _, output in outputs:
            counter.add(0, output)
            usage = counter.usage() if body.repeats_usage else None
            chunks = []
            if not opened:
                opened = True
                openings = [_opening(index, output, body) for index in indices]
                chunks += [writer.chunk(choice, usage) for choice in openings]
            for completion in output.outputs:
                if plain and completion.finish_reason is None:
                    if completion.text:
                        chunks.append(texts[completion.index](completion.text))
                elif completion.token_ids or completion.text or completion.finished:
                    chunks.append(writer.chunk(_choice(engine, completion, body), usage))
            if chunks:
                yield b"".join(chunks)
    if body.includes_usage:
        yield writer.usage(counter.usage())


def _text_choice(index: int, text: str) -> ChunkChoice:
    return ChunkChoice(index=index, delta=Delta(content=text))


def _opening(index: int, output: RequestOutput, body: ChatBody) -> ChunkChoice:
    choice = ChunkChoice(index=index, delta=Delta(role="assistant", content=""))
    if index == 0 and body.prompt_logprobs is not None:
        choice.prompt_logprobs = prompt_logprobs(output, body.prompt_logprobs)
    return choice


def _choice(engine: EngineClient, completion: CompletionOutput, body: ChatBody) -> ChunkChoice:
    choice = ChunkChoice(
        index=completion.index,
        delta=Delta(content=completion.text or UNSET),
        finish_reason=completion.finish_reason,
    )
    if body.logprobs and completion.logprobs:
        choice.logprobs = chat_logprobs(engine, completion.logprobs, body.top_logprobs or 0)
    if completion.stop_reason is not None:
        choice.stop_reason = completion.stop_reason
    if body.return_token_ids:
        choice.token_ids = completion.token_ids
    return choice
