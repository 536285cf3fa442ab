"""The events of a streamed response (Responses API of OpenAI, streaming events).

Order: created, in_progress, output_item.added, content_part.added, output_text.delta (any
number), output_text.done, content_part.done, output_item.done, and one of completed, incomplete
and failed. `failed` may come after any of them but is always the last.
"""

from __future__ import annotations

import msgspec

from builtin_plugins.openai_server.logprobs import TokenLogprob
from builtin_plugins.openai_server.responses_types import (
    OutputMessage,
    OutputText,
    ResponseObject,
)

__all__ = [
    "ItemAdded",
    "ItemDone",
    "PartAdded",
    "PartDone",
    "PartEvent",
    "ResponseCompleted",
    "ResponseCreated",
    "ResponseEvent",
    "ResponseFailed",
    "ResponseInProgress",
    "ResponseIncomplete",
    "StreamEvent",
    "TextAppended",
    "TextDone",
]


class StreamEvent(msgspec.Struct, kw_only=True, tag_field="type"):
    """An event; its `type` is the struct's tag."""

    sequence_number: int
    """From 0, without gaps."""


class ResponseEvent(StreamEvent, kw_only=True):
    """An event about the response as a whole."""

    response: ResponseObject


class ResponseCreated(ResponseEvent, kw_only=True, tag="response.created"):
    """First."""


class ResponseInProgress(ResponseEvent, kw_only=True, tag="response.in_progress"):
    """The model works."""


class ResponseCompleted(ResponseEvent, kw_only=True, tag="response.completed"):
    """Last, when the output is whole."""


class ResponseIncomplete(ResponseEvent, kw_only=True, tag="response.incomplete"):
    """Last, when the output was cut off."""


class ResponseFailed(ResponseEvent, kw_only=True, tag="response.failed"):
    """Last, when something went wrong."""


class ItemAdded(StreamEvent, kw_only=True, tag="response.output_item.added"):
    """The message begins."""

    item: OutputMessage
    output_index: int = 0


class ItemDone(StreamEvent, kw_only=True, tag="response.output_item.done"):
    """The message is whole, or was cut off."""

    item: OutputMessage
    output_index: int = 0


class PartEvent(StreamEvent, kw_only=True):
    """An event about the text part of the message."""

    item_id: str
    output_index: int = 0
    content_index: int = 0


class PartAdded(PartEvent, kw_only=True, tag="response.content_part.added"):
    """The text begins."""

    part: OutputText


class PartDone(PartEvent, kw_only=True, tag="response.content_part.done"):
    """The text is whole, or was cut off."""

    part: OutputText


class TextAppended(PartEvent, kw_only=True, tag="response.output_text.delta"):
    """New text."""

    delta: str
    logprobs: list[TokenLogprob]


class TextDone(PartEvent, kw_only=True, tag="response.output_text.done"):
    """All text."""

    text: str
    logprobs: list[TokenLogprob]
