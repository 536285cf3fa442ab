"""What a client sends to the Messages endpoints and gets back: bodies, events, errors.

The form is the Messages API of Anthropic, version 2023-06-01
(https://platform.claude.com/docs/en/api/messages).
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from builtin_plugins.openai_server.content import ContentPart

__all__ = [
    "BlockDelta",
    "BlockStart",
    "BlockStop",
    "CountBody",
    "CountedTokens",
    "FailureBody",
    "FailureDetail",
    "InputTurn",
    "Message",
    "MessageDelta",
    "MessageMetadata",
    "MessageStart",
    "MessageStop",
    "MessageUsage",
    "MessagesBody",
    "Ping",
    "StopFacts",
    "StopReason",
    "TextBlock",
    "TextDelta",
]

StopReason = Literal["end_turn", "max_tokens", "stop_sequence"]


class InputTurn(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """One message of the conversation."""

    role: Annotated[str, Meta(description="user or assistant.")]
    content: str | list[ContentPart]
    cache_control: Annotated[Any, Meta(description="Without effect.")] = None


class MessageMetadata(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Facts about the request."""

    user_id: Annotated[
        str | None, Meta(description="Who is served: the tenant of fair scheduling.")
    ] = None


class CountBody(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Body of `POST /v1/messages/count_tokens`: what makes up the prompt."""

    model: str
    messages: list[InputTurn]
    system: str | list[ContentPart] | None = None
    tools: list[Any] | None = None
    tool_choice: dict[str, Any] | None = None
    thinking: dict[str, Any] | None = None
    mcp_servers: list[Any] | None = None
    output_config: Annotated[dict[str, Any] | None, Meta(description="effort, without effect.")] = (
        None
    )
    output_format: Annotated[Any, Meta(description="Not supported.")] = None
    speed: Annotated[str | None, Meta(description="Only standard.")] = None
    context_management: dict[str, Any] | None = None
    cache_control: Annotated[
        dict[str, Any] | None, Meta(description="Without effect: prefixes are cached anyway.")
    ] = None


class MessagesBody(CountBody, kw_only=True, forbid_unknown_fields=True):
    """Body of `POST /v1/messages`."""

    max_tokens: Annotated[int, Meta(ge=1)]
    stop_sequences: list[str] | None = None
    stream: bool | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    metadata: MessageMetadata | None = None
    container: str | dict[str, Any] | None = None
    service_tier: Literal["auto", "standard_only"] | None = None
    inference_geo: Annotated[str | None, Meta(description="Without effect.")] = None


class CountedTokens(msgspec.Struct, kw_only=True):
    """Answer of `POST /v1/messages/count_tokens`."""

    input_tokens: int


class MessageUsage(msgspec.Struct, kw_only=True):
    """Numbers of tokens. The prompt has `input_tokens + cache_read_input_tokens` tokens."""

    input_tokens: int
    output_tokens: int
    cache_read_input_tokens: int
    cache_creation_input_tokens: int = 0


class TextBlock(msgspec.Struct, kw_only=True, tag_field="type", tag="text"):
    """The content block of an answer."""

    text: str


class Message(msgspec.Struct, kw_only=True, tag_field="type", tag="message"):
    """Answer of `POST /v1/messages`."""

    id: str
    model: str
    content: list[TextBlock]
    usage: MessageUsage
    role: Literal["assistant"] = "assistant"
    stop_reason: StopReason | None = None
    stop_sequence: str | None = None


class MessageStart(msgspec.Struct, kw_only=True, tag_field="type", tag="message_start"):
    """First event: the message without content."""

    message: Message


class BlockStart(msgspec.Struct, kw_only=True, tag_field="type", tag="content_block_start"):
    """A content block begins."""

    content_block: TextBlock
    index: int = 0


class Ping(msgspec.Struct, tag_field="type", tag="ping"):
    """Says nothing."""


class TextDelta(msgspec.Struct, kw_only=True, tag_field="type", tag="text_delta"):
    """New text of a block."""

    text: str


class BlockDelta(msgspec.Struct, kw_only=True, tag_field="type", tag="content_block_delta"):
    """A content block grows."""

    delta: TextDelta
    index: int = 0


class BlockStop(msgspec.Struct, kw_only=True, tag_field="type", tag="content_block_stop"):
    """A content block is complete."""

    index: int = 0


class StopFacts(msgspec.Struct, kw_only=True):
    """Why an answer ended."""

    stop_reason: StopReason
    stop_sequence: str | None = None


class MessageDelta(msgspec.Struct, kw_only=True, tag_field="type", tag="message_delta"):
    """How the message ended; numbers of tokens are totals."""

    delta: StopFacts
    usage: MessageUsage


class MessageStop(msgspec.Struct, tag_field="type", tag="message_stop"):
    """Last event."""


class FailureDetail(msgspec.Struct, kw_only=True):
    """The `error` member of an error."""

    type: str
    message: str


class FailureBody(msgspec.Struct, kw_only=True, tag_field="type", tag="error"):
    """Body of an error, and the data of the error event of a stream."""

    error: FailureDetail
    request_id: str
