"""Checks of chat messages, before a chat template sees them."""

from __future__ import annotations

from typing import Any, Final

from framework.frontend.checks import encodable, plain, shorten
from hookspecs.errors import InvalidRequestError

__all__ = ["check_messages"]

ROLES: Final = ("system", "developer", "user", "assistant", "tool", "function")


def check_messages(messages: object) -> list[dict[str, Any]]:
    """`messages` if it is a list, not empty, of dicts with a known `role` and a text
    `content` (which only an assistant's tool calls may lack). InvalidRequestError.

    Roles are checked here since most templates render any word as a role."""
    if not isinstance(messages, list):
        raise _error(f"messages is {shorten(messages)}; it must be a list of messages")
    if not messages:
        raise _error("messages is empty; give at least one message")
    for position, message in enumerate(messages):
        at = f"messages[{position}]"
        if not isinstance(message, dict):
            raise _error(f"{at} is {shorten(message)}; it must be a dict with role and content")
        role = message.get("role")
        if not isinstance(role, str) or role not in ROLES:
            raise _error(f"{at} has the role {shorten(role)}; known are {', '.join(ROLES)}", role)
        content = message.get("content")
        if content is None and role == "assistant" and message.get("tool_calls"):
            continue
        if not isinstance(content, str) or not encodable(content):
            raise _error(f"{at} has the content {shorten(content)}; it must be text", content)
    return messages


def _error(message: str, value: object = None) -> InvalidRequestError:
    return InvalidRequestError(message, param="messages", value=plain(value))
