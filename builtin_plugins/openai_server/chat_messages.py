"""The messages of a chat completion as the model's template gets them."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from builtin_plugins.openai_server.chat_types import ChatMessage
from builtin_plugins.openai_server.content import joined_text
from builtin_plugins.openai_server.errors import ApiError
from builtin_plugins.openai_server.limits import MESSAGES, check_limit

__all__ = ["chat_messages"]

ROLES: Final = {
    "system": "system",
    "developer": "system",  # the newer name, which few templates know
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
}
PARTS: Final = ("text",)
ASSISTANT_PARTS: Final = ("text", "refusal")


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
    content = message.content
    if content is not None or not message.tool_calls:
        types = ASSISTANT_PARTS if role == "assistant" else PARTS
        content = joined_text(content or "", f"{at}.content", types)
    made: dict[str, Any] = {"role": role, "content": content}
    if message.name is not None:
        made["name"] = message.name
    if message.tool_calls:
        made["tool_calls"] = [_tool_call(call) for call in message.tool_calls]
    if message.tool_call_id is not None:
        made["tool_call_id"] = message.tool_call_id
    return made


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
