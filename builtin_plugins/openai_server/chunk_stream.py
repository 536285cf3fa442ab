"""Outputs of the engine as a stream of chunks: what completions and chats have in common."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, Protocol

import msgspec

from builtin_plugins.openai_server.chunks import ChunkWriter, Envelope
from builtin_plugins.openai_server.generation import Job, generate
from builtin_plugins.openai_server.sse import Event
from builtin_plugins.openai_server.text_fields import TextFields
from builtin_plugins.openai_server.usage import UsageCounter
from hookspecs.types.outputs import CompletionOutput, RequestOutput

__all__ = ["ChunkForm", "chunk_events"]


class ChunkForm(Protocol):
    """The choices of one call's chunks. Their indices are 0 to prompts * n - 1."""

    def prepare(self, output: RequestOutput) -> None:
        """Take away what is not shown, before anything is counted."""

    async def first(self, prompt_index: int, output: RequestOutput) -> Sequence[msgspec.Struct]:
        """What the choices of a prompt begin with, given its first output."""

    def news(self, index: int, completion: CompletionOutput) -> msgspec.Struct | None:
        """What is new of a choice; None: nothing."""

    def text(self, index: int, text: str) -> msgspec.Struct:
        """A choice whose only news is text."""


async def chunk_events(
    job: Job, prompts: Sequence[Any], body: TextFields, envelope: Envelope, form: ChunkForm
) -> AsyncGenerator[Event, None]:
    """Encoded chunks. Raises as `generate`, before the first chunk or after any."""
    n = job.params.n
    writer = ChunkWriter(envelope, null_usage=body.includes_usage)
    counter = UsageCounter()
    repeats_usage = body.repeats_usage
    plain = job.params.logprobs is None and not (body.return_token_ids or repeats_usage)
    texts = [writer.texts(partial(form.text, index)) for index in range(len(prompts) * n)]
    begun: set[int] = set()
    async with aclosing(generate(job, prompts)) as outputs:
        async for prompt_index, output in outputs:
            form.prepare(output)
            counter.add(prompt_index, output)
            usage = counter.usage() if repeats_usage else None
            chunks: list[bytes] = []
            if prompt_index not in begun:
                begun.add(prompt_index)
                first = await form.first(prompt_index, output)
                chunks += [writer.chunk(choice, usage) for choice in first]
            for completion in output.outputs:
                index = prompt_index * n + completion.index
                if plain and completion.finish_reason is None:
                    if completion.text:
                        chunks.append(texts[index](completion.text))
                    continue
                choice = form.news(index, completion)
                if choice is not None:
                    chunks.append(writer.chunk(choice, usage))
            if chunks:
                yield b"".join(chunks)
    if body.includes_usage:
        yield writer.usage(counter.usage())
