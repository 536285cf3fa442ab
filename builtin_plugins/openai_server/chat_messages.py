"""The messages of a chat completion as the model's template gets them."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from builtin_plugins.openai_server.chat_types import ChatBody, ChatMessage, ContentPart
from builtin_plugins.openai_server.errors import ApiError
from builtin_plugins.openai_server.limits import CONTENT_PARTS, MESSAGES, check_limit
from builtin_plugins.openai_server.unsupported import refuse_unsupported, unsupported

__all__ = ["chat_messages", "refuse_features"]

ROLES: Final = {
    "system": "system",
    "developer": "system",  # the newer name, which few templates know
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
}
NEUTRAL: Final[dict[str, tuple[Any, ...]]] = {
    "tool_choice": ("none",),
    "function_call": ("none",),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
    "reasoning_effort": ("none",),
    "verbosity": ("medium",),
    "service_tier": ("auto", "default"),
}
"""Values that ask for nothing but text."""


def refuse_features(body: ChatBody) -> None:
    """Raise ApiError (400) where the body asks for more than text in and text out. Tools are
    taken with `tool_choice` none, which says not to use them."""
    names = ["functions", "audio", "prediction", "web_search_options", "store"]
    names.append("continue_final_message")
    if body.tool_choice != "none":
        names.append("tools")
    refuse_unsupported({name: getattr(body, name) for name in names})
    for name, neutral in NEUTRAL.items():
        value = getattr(body, name)
        if value is not None and value not in neutral:
            shown = " or ".join(msgspec.json.encode(one).decode() for one in neutral)
            raise unsupported(name, f"this {name} is not supported; leave it out or give {shown}")


def chat_messages(messages: list[ChatMessage]) -> list[dict[str, Any]]:
    """Role and content as text, and what belongs to calls of tools. ApiError (400) for none, for an
    unknown role and for content that is no text; the order of roles is the template's to judge."""
    if not messages:
        raise ApiError(400, "messages is empty; give at least one message", param="messages")
    check_limit(MESSAGES, len(messages), "messages")
    return [_message(message, f"messages[{at}]") for at, message in enumerate(messages)]


def _message(message: ChatMessage, at: str) -> dict[str, Any]:
    role = ROLES.get(message.role)
    if role is None:
        raise ApiError(
            400,
            f"{at} has the role {message.role[:50]!r}; known are {', '.join(ROLES)}",
            param=f"{at}.role",
        )
    if message.content is None and role != "assistant":
        raise ApiError(
            400,
            f"{at} has no content; only messages of the assistant may have none",
            param=f"{at}.content",
        )
    made: dict[str, Any] = {"role": role, "content": _content(message.content, f"{at}.content")}
    if message.name is not None:
        made["name"] = message.name
    if message.tool_calls:
        made["tool_calls"] = [_tool_call(call) for call in message.tool_calls]
    if message.tool_call_id is not None:
        made["tool_call_id"] = message.tool_call_id
    return made


def _content(content: str | list[ContentPart] | None, at: str) -> str | None:
    """The text; parts of text are joined by line breaks."""
    if content is None or isinstance(content, str):
        return content
    check_limit(CONTENT_PARTS, len(content), at)
    if not content:
        raise ApiError(400, f"{at} is an empty list; give text or parts of text", param=at)
    return "\n".join(_text(part, f"{at}[{number}]") for number, part in enumerate(content))


def _text(part: ContentPart, at: str) -> str:
    if part.type != "text":
        raise unsupported(
            at, f"{at} is of type {part.type[:50]!r}; only parts of type 'text' are supported"
        )
    if part.text is None:
        raise ApiError(400, f"{at} is of type 'text' but has no text", param=at)
    return part.text


def _tool_call(call: dict[str, Any]) -> dict[str, Any]:
    """Templates expect the arguments as an object; the API has them as its JSON text. What the
    model wrote may be no JSON: then it stays text."""
    function = call.get("function")
    if not isinstance(function, dict) or not isinstance(function.get("arguments"), str):
        return call
    try:
        arguments = msgspec.json.decode(function["arguments"])
    except (msgspec.DecodeError, RecursionError):
        return call
    return {**call, "function": {**function, "arguments": arguments}}
