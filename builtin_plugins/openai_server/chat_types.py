"""What a client sends to `POST /v1/chat/completions`, and the objects it gets back.

The form is the Chat Completions API of OpenAI (https://developers.openai.com/api/reference).
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from builtin_plugins.openai_server.content import ContentPart
from builtin_plugins.openai_server.logprobs import ChatLogprobs, PromptLogprob
from builtin_plugins.openai_server.text_fields import TextFields
from builtin_plugins.openai_server.usage import Usage

__all__ = [
    "AssistantMessage",
    "ChatBody",
    "ChatChoice",
    "ChatCompletion",
    "ChatMessage",
    "ChunkChoice",
    "Delta",
]


class ChatMessage(msgspec.Struct, kw_only=True):
    """A message of the conversation. What answers carry besides (refusal, annotations, audio) is
    not read when they are sent back."""

    role: Annotated[str, Meta(description="system, developer, user, assistant or tool.")]
    content: Annotated[
        str | list[ContentPart] | None,
        Meta(description="Null is for assistants only, and is empty text."),
    ] = None
    name: str | None = None
    tool_calls: list[dict[str, Any]] | None = None
    tool_call_id: str | None = None


class ChatBody(TextFields, kw_only=True):
    """Body of `POST /v1/chat/completions`."""

    messages: list[ChatMessage]
    max_completion_tokens: Annotated[
        Annotated[int, Meta(ge=1)] | None,
        Meta(description="Wins over max_tokens. Neither given: fills the context."),
    ] = None
    max_tokens: Annotated[
        int | None, Meta(description="The older name of max_completion_tokens.")
    ] = None
    logprobs: bool | None = None
    top_logprobs: Annotated[
        Annotated[int, Meta(ge=0)] | None,
        Meta(description="Most likely tokens to give with each token; needs logprobs: true."),
    ] = None
    add_generation_prompt: Annotated[
        bool | None, Meta(description="End the prompt with the assistant's header; default true.")
    ] = None
    chat_template_kwargs: Annotated[
        dict[str, Any] | None, Meta(description="Variables for the chat template.")
    ] = None
    continue_final_message: Annotated[bool | None, Meta(description="Not supported.")] = None
    tools: Annotated[Any, Meta(description="Not supported, unless tool_choice is none.")] = None
    tool_choice: Annotated[Any, Meta(description="Only none and auto.")] = None
    parallel_tool_calls: Annotated[bool | None, Meta(description="Without effect.")] = None
    functions: Annotated[Any, Meta(description="Not supported, unless function_call is none.")] = (
        None
    )
    function_call: Annotated[Any, Meta(description="Only none and auto.")] = None
    response_format: Annotated[Any, Meta(description='Only {"type": "text"}.')] = None
    modalities: Annotated[Any, Meta(description='Only ["text"].')] = None
    audio: Annotated[Any, Meta(description="Not supported.")] = None
    prediction: Annotated[Any, Meta(description="Not supported.")] = None
    web_search_options: Annotated[Any, Meta(description="Not supported.")] = None
    reasoning_effort: Annotated[str | None, Meta(description="A hint; without effect.")] = None
    verbosity: Annotated[str | None, Meta(description="A hint; without effect.")] = None


class AssistantMessage(msgspec.Struct, kw_only=True):
    """The answer of the model."""

    role: Literal["assistant"] = "assistant"
    content: str
    refusal: None = None


class ChatChoice(msgspec.Struct, kw_only=True):
    """One output."""

    index: int
    message: AssistantMessage
    logprobs: ChatLogprobs | None = None
    finish_reason: str | None
    """stop or length."""
    stop_reason: int | str | UnsetType = UNSET
    """The stop string or token that ended it; absent for the model's own end token."""
    token_ids: list[int] | UnsetType = UNSET
    """If asked for; as logprobs, up to the token that completed a stop."""
    prompt_logprobs: list[dict[str, PromptLogprob] | None] | UnsetType = UNSET
    """If asked for, on the first choice."""


class ChatCompletion(msgspec.Struct, kw_only=True):
    """The answer in one piece."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    """Seconds since 1970, UTC."""
    model: str
    choices: list[ChatChoice]
    usage: Usage
    service_tier: Literal["default"] | UnsetType = UNSET
    """If the client gave one."""


class Delta(msgspec.Struct, kw_only=True):
    """What is new of a message."""

    role: Literal["assistant"] | UnsetType = UNSET
    content: str | UnsetType = UNSET


class ChunkChoice(msgspec.Struct, kw_only=True):
    """What is new of a choice."""

    index: int
    delta: Delta
    logprobs: ChatLogprobs | None = None
    finish_reason: str | None = None
    """Null while it runs."""
    stop_reason: int | str | UnsetType = UNSET
    token_ids: list[int] | UnsetType = UNSET
    prompt_logprobs: list[dict[str, PromptLogprob] | None] | UnsetType = UNSET
