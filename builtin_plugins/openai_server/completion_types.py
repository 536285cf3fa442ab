"""What a client sends to `POST /v1/completions`, and the objects it gets back.

The form is the Completions API of OpenAI (https://developers.openai.com/api/reference).
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from builtin_plugins.openai_server.logprobs import CompletionLogprobs, PromptLogprob
from builtin_plugins.openai_server.text_fields import TextFields
from builtin_plugins.openai_server.usage import Usage

__all__ = ["Completion", "CompletionBody", "CompletionChoice"]


class CompletionBody(TextFields, kw_only=True):
    """Body of `POST /v1/completions`."""

    prompt: Annotated[
        str | list[Any],
        Meta(description="Text, texts, token ids, or lists of token ids; not mixed."),
    ]
    max_tokens: Annotated[
        int | UnsetType | None,
        Meta(description="Default 16; null fills the context; with echo, 0 is allowed."),
    ] = UNSET
    best_of: Annotated[
        int | None,
        Meta(
            description="Outputs made for each prompt, of which the n with the highest mean "
            "logprob of a token are given. More than n: not with stream."
        ),
    ] = None
    echo: Annotated[bool | None, Meta(description="Begin each choice with its prompt.")] = None
    logprobs: Annotated[
        Annotated[int, Meta(ge=0)] | None,
        Meta(description="Most likely tokens to give with each token; with echo also the prompt's"),
    ] = None
    suffix: Annotated[str | None, Meta(description="Not supported.")] = None


class CompletionChoice(msgspec.Struct, kw_only=True):
    """One output, or in a chunk what is new of it."""

    index: int
    """Of the prompt, times n, plus that of the output."""
    text: str
    logprobs: CompletionLogprobs | None = None
    finish_reason: str | None = None
    """stop or length; null while it runs."""
    stop_reason: int | str | UnsetType = UNSET
    """The stop string or token that ended it; absent for the model's own end token."""
    token_ids: list[int] | UnsetType = UNSET
    """If asked for, those of the output; as logprobs, up to the token that completed a stop."""
    prompt_logprobs: list[dict[str, PromptLogprob] | None] | UnsetType = UNSET
    """If asked for, on the first choice of each prompt."""


class Completion(msgspec.Struct, kw_only=True):
    """The answer."""

    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int
    """Seconds since 1970, UTC."""
    model: str
    choices: list[CompletionChoice]
    usage: Usage
