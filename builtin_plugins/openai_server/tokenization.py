"""`/tokenize` and `/detokenize`: text to token ids and back, as the engine does it."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta
from starlette.responses import Response

from builtin_plugins.openai_server.answers import json_answer
from builtin_plugins.openai_server.endpoint import Call, Endpoint
from builtin_plugins.openai_server.errors import ApiError
from builtin_plugins.openai_server.limits import (
    DETOKENIZE_TOKENS,
    MESSAGES,
    TOKENIZE_CHARS,
    TOOLS,
    check_limit,
    limit_error,
)
from builtin_plugins.openai_server.sampling import check_model
from hookspecs.contracts.frontend import EngineClient

__all__ = ["ENDPOINTS"]

TOKEN_STRS: Final = "return_token_strs"
TEXTS_AT_ONCE: Final = 1024


class TokenizeBody(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Body of `POST /tokenize`: `prompt` or `messages`."""

    model: str | None = None
    prompt: Annotated[str | None, Meta(description="A text.")] = None
    messages: Annotated[
        list[dict[str, Any]] | None,
        Meta(description="A conversation, to which the chat template is applied."),
    ] = None
    add_special_tokens: Annotated[
        bool,
        Meta(description="With a prompt: as the tokenizer adds them. Templates hold their own."),
    ] = True
    add_generation_prompt: Annotated[
        bool, Meta(description="With messages: end with the beginning of an answer.")
    ] = True
    tools: list[dict[str, Any]] | None = None
    chat_template_kwargs: Annotated[
        dict[str, Any] | None, Meta(description="Arguments of the chat template.")
    ] = None
    return_token_strs: Annotated[bool, Meta(description="Also the text of each token.")] = False


class TokenizeAnswer(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Answer of `POST /tokenize`."""

    tokens: list[int]
    count: int
    max_model_len: int
    token_strs: list[str] | None = None
    """Bytes that are no whole character are replaced by U+FFFD."""


class DetokenizeBody(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Body of `POST /detokenize`."""

    tokens: list[Annotated[int, Meta(ge=0, le=2**31 - 1)]]
    model: str | None = None


class DetokenizeAnswer(msgspec.Struct, kw_only=True):
    """Answer of `POST /detokenize`."""

    prompt: str


async def tokenize(call: Call[TokenizeBody]) -> Response:
    """POST /tokenize"""
    body, engine = call.body, call.service.engine
    check_model(call.service, body.model)
    if (body.prompt is None) == (body.messages is None):
        raise ApiError(400, "give either `prompt` or `messages`", param="prompt")
    tokens = await (_prompt_tokens(call) if body.messages is None else _chat_tokens(call))
    answer = TokenizeAnswer(
        tokens=tokens, count=len(tokens), max_model_len=engine.info.max_model_len
    )
    if body.return_token_strs:
        answer.token_strs = await _texts(engine, tokens)
    return json_answer(answer)


async def _texts(engine: EngineClient, tokens: list[int]) -> list[str]:
    """In parts, after each of which other tasks get their turn."""
    if len(tokens) > engine.info.max_model_len:
        raise limit_error("max_model_len", len(tokens), engine.info.max_model_len, TOKEN_STRS)
    texts = []
    for begin in range(0, len(tokens), TEXTS_AT_ONCE):
        part = tokens[begin : begin + TEXTS_AT_ONCE]
        texts += [engine.token_bytes(token).decode(errors="replace") for token in part]
        await asyncio.sleep(0)
    return texts


async def _prompt_tokens(call: Call[TokenizeBody]) -> list[int]:
    text = call.body.prompt or ""
    check_limit(TOKENIZE_CHARS, len(text), "prompt")
    return await call.service.engine.tokenize(text, add_special_tokens=call.body.add_special_tokens)


async def _chat_tokens(call: Call[TokenizeBody]) -> list[int]:
    body = call.body
    messages, tools = body.messages or [], body.tools or []
    check_limit(MESSAGES, len(messages), "messages")
    check_limit(TOOLS, len(tools), "tools")
    prompt = await call.service.engine.chat_prompt(
        messages,
        add_generation_prompt=body.add_generation_prompt,
        tools=tools,
        template_arguments=body.chat_template_kwargs,
    )
    tokens: list[int] = prompt["prompt_token_ids"]
    return tokens


async def detokenize(call: Call[DetokenizeBody]) -> Response:
    """POST /detokenize"""
    check_model(call.service, call.body.model)
    check_limit(DETOKENIZE_TOKENS, len(call.body.tokens), "tokens")
    return json_answer(
        DetokenizeAnswer(prompt=await call.service.engine.detokenize(call.body.tokens))
    )


ENDPOINTS = (
    Endpoint(
        "POST",
        "/tokenize",
        tokenize,
        "Token ids of a text or conversation",
        body=TokenizeBody,
        answer=TokenizeAnswer,
    ),
    Endpoint(
        "POST",
        "/detokenize",
        detokenize,
        "Text of token ids",
        body=DetokenizeBody,
        answer=DetokenizeAnswer,
    ),
)
