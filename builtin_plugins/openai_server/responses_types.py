"""What a client sends to `POST /v1/responses`, and the objects it gets back.

The form is the Responses API of OpenAI (https://developers.openai.com/api/reference/responses).
The events of a stream are in `responses_events`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from builtin_plugins.openai_server.content import ContentPart
from builtin_plugins.openai_server.logprobs import TokenLogprob
from builtin_plugins.openai_server.sampling import RequestFields

__all__ = [
    "FailureCode",
    "IncompleteDetails",
    "InputItem",
    "InputTokensDetails",
    "ItemStatus",
    "OutputMessage",
    "OutputText",
    "OutputTokensDetails",
    "PlainTextFormat",
    "ResponseFailure",
    "ResponseObject",
    "ResponseUsage",
    "ResponsesBody",
    "TextConfig",
]

FailureCode = Literal["server_error", "rate_limit_exceeded", "invalid_prompt"]
ItemStatus = Literal["in_progress", "completed", "incomplete"]
ResponseStatus = Literal["in_progress", "completed", "incomplete", "failed"]


class InputItem(msgspec.Struct, kw_only=True):
    """An item of the input. Only messages are served; what output messages carry besides role
    and content (id, status, phase) is not read."""

    type: str = "message"
    role: Annotated[str, Meta(description="user, assistant, system or developer.")] = ""
    content: str | list[ContentPart] | None = None


class ResponsesBody(RequestFields, kw_only=True):
    """Body of `POST /v1/responses`."""

    input: str | list[InputItem]
    instructions: Annotated[str | None, Meta(description="A system message before the input.")] = (
        None
    )
    max_output_tokens: Annotated[int, Meta(ge=1)] | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_logprobs: Annotated[
        Annotated[int, Meta(ge=0, le=20)] | None,
        Meta(description="Alternatives a token; needs `message.output_text.logprobs` in include."),
    ] = None
    seed: int | None = None
    include: Annotated[
        list[str] | None,
        Meta(
            description="`message.output_text.logprobs`; `reasoning.encrypted_content` is taken "
            "without effect."
        ),
    ] = None
    stream: bool | None = None
    stream_options: Annotated[dict[str, Any] | None, Meta(description="Without effect.")] = None
    text: dict[str, Any] | None = None
    tools: list[Any] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: Annotated[bool | None, Meta(description="Without effect.")] = None
    max_tool_calls: Annotated[int | None, Meta(description="Without effect.")] = None
    truncation: str | None = None
    background: bool | None = None
    previous_response_id: str | None = None
    conversation: str | dict[str, Any] | None = None
    prompt: dict[str, Any] | None = None
    reasoning: Annotated[
        dict[str, Any] | None, Meta(description="effort and summary, without effect.")
    ] = None
    context_management: list[Any] | None = None
    moderation: dict[str, Any] | None = None


class OutputText(msgspec.Struct, kw_only=True, tag_field="type", tag="output_text"):
    """The part of an output message."""

    text: str = ""
    annotations: list[Any] = msgspec.field(default_factory=list)
    logprobs: list[TokenLogprob] = msgspec.field(default_factory=list)
    """Empty unless asked for."""


class OutputMessage(msgspec.Struct, kw_only=True, tag_field="type", tag="message"):
    """The item of a response's output."""

    id: str
    status: ItemStatus
    content: list[OutputText]
    role: Literal["assistant"] = "assistant"


class InputTokensDetails(msgspec.Struct, kw_only=True):
    """Of the tokens of the prompt."""

    cached_tokens: int
    """Whose keys and values were in the cache."""
    cache_write_tokens: int = 0
    """Billed writes; there are none."""


class OutputTokensDetails(msgspec.Struct, kw_only=True):
    """Of the tokens of the output."""

    reasoning_tokens: int = 0


class ResponseUsage(msgspec.Struct, kw_only=True):
    """Numbers of tokens."""

    input_tokens: int
    input_tokens_details: InputTokensDetails
    output_tokens: int
    total_tokens: int
    output_tokens_details: OutputTokensDetails = msgspec.field(default_factory=OutputTokensDetails)


class IncompleteDetails(msgspec.Struct, kw_only=True):
    """Why a response is incomplete."""

    reason: Literal["max_output_tokens"] = "max_output_tokens"


class ResponseFailure(msgspec.Struct, kw_only=True):
    """Why a response failed."""

    message: str
    code: FailureCode = "server_error"


class PlainTextFormat(msgspec.Struct, kw_only=True, tag_field="type", tag="text"):
    """The only format of the output."""


class TextConfig(msgspec.Struct, kw_only=True):
    """How the text of the output is formed."""

    format: PlainTextFormat = msgspec.field(default_factory=PlainTextFormat)


class ResponseObject(msgspec.Struct, kw_only=True, tag_field="object", tag="response"):
    """Answer of `POST /v1/responses`."""

    id: str
    created_at: int
    """Seconds since 1970, UTC."""
    model: str
    status: ResponseStatus
    output: list[OutputMessage]
    temperature: float
    """In effect, as is top_p: given, or what the model's authors recommend."""
    top_p: float
    completed_at: int | None = None
    error: ResponseFailure | None = None
    incomplete_details: IncompleteDetails | None = None
    usage: ResponseUsage | None = None
    instructions: str | None = None
    max_output_tokens: int | None = None
    metadata: dict[str, str] = msgspec.field(default_factory=dict)
    user: str | None = None
    safety_identifier: str | None = None
    top_logprobs: int = 0
    parallel_tool_calls: bool = True
    tool_choice: Literal["auto", "none"] = "auto"
    tools: list[Any] = msgspec.field(default_factory=list)
    text: TextConfig = msgspec.field(default_factory=TextConfig)
    truncation: Literal["disabled"] = "disabled"
    service_tier: Literal["default"] = "default"
    background: bool = False
    store: bool = False
    """Answers are not stored."""
    previous_response_id: None = None
