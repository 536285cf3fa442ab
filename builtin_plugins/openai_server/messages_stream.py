"""A streamed answer of `POST /v1/messages`, event by event.

message_start, content_block_start, ping, content_block_delta (any number), content_block_stop,
message_delta, message_stop; or, after any of them, error, which is then the last.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

import msgspec

from builtin_plugins.openai_server.errors import ApiError
from builtin_plugins.openai_server.generation import Outputs
from builtin_plugins.openai_server.messages_answer import failure_body, stop_facts, usage
from builtin_plugins.openai_server.messages_types import (
    BlockDelta,
    BlockStart,
    BlockStop,
    Message,
    MessageDelta,
    MessageStart,
    MessageStop,
    Ping,
    TextBlock,
    TextDelta,
)
from builtin_plugins.openai_server.sse import Event

__all__ = ["failure_event", "message_events"]


async def message_events(
    outputs: Outputs, message_id: str, model: str
) -> AsyncGenerator[Event, None]:
    """The events of a request's outputs, which hold what is new (OutputKind.DELTA).

    Nothing comes before the first output, which tells how many tokens of the prompt were cached.
    `outputs` is closed at the end.
    """
    num_tokens = 0
    started = False
    async with aclosing(outputs):
        async for _, output in outputs:
            (part,) = output.outputs
            num_tokens += len(part.token_ids)
            if not started:
                started = True
                message = Message(
                    id=message_id, model=model, content=[], usage=usage(output, num_tokens)
                )
                yield _named(MessageStart(message=message))
                yield _named(BlockStart(content_block=TextBlock(text="")))
                yield _named(Ping())
            if part.text:
                yield _named(BlockDelta(delta=TextDelta(text=part.text)))
            if output.finished:
                yield _named(BlockStop())
                yield _named(MessageDelta(delta=stop_facts(part), usage=usage(output, num_tokens)))
                yield _named(MessageStop())


def failure_event(error: ApiError, request_id: str) -> Event:
    """The last event of a stream that fails."""
    return _named(failure_body(error, request_id))


def _named(data: msgspec.Struct) -> Event:
    return str(data.__struct_config__.tag), data
