"""The conversation of a Messages request as chat messages for the model's template."""

from __future__ import annotations

from typing import Final

from builtin_plugins.openai_server.content import joined_text
from builtin_plugins.openai_server.conversation import join_adjacent
from builtin_plugins.openai_server.errors import ApiError
from builtin_plugins.openai_server.features import WITHOUT_EFFECT, Features, unsupported
from builtin_plugins.openai_server.limits import MESSAGES, check_limit
from builtin_plugins.openai_server.messages_types import CountBody

__all__ = ["FEATURES", "chat_messages"]

ROLES = ("user", "assistant")
PARTS: Final = ("text",)
FEATURES: Final[Features] = {
    "tools": (),
    "tool_choice": ({"type": "auto"}, {"type": "none"}),
    "thinking": ({"type": "disabled"},),
    "mcp_servers": (),
    "container": (),
    "context_management": (),
    "output_config": {"effort": WITHOUT_EFFECT},
    "output_format": (),
    "speed": ("standard",),
    "cache_control": WITHOUT_EFFECT,
    "inference_geo": WITHOUT_EFFECT,
    "service_tier": WITHOUT_EFFECT,
}


def chat_messages(body: CountBody) -> list[dict[str, str]]:
    """The system prompt, then the turns; adjacent turns of one role are one, as the Messages API
    defines. ApiError (400) for roles, blocks and orders that can not be served."""
    if not body.messages:
        raise ApiError(400, "messages is empty; give at least one message", param="messages")
    check_limit(MESSAGES, len(body.messages), "messages")
    messages = []
    if system := joined_text(body.system or "", "system", PARTS):
        messages.append({"role": "system", "content": system})
    for position, turn in enumerate(body.messages):
        at = f"messages[{position}]"
        if turn.role not in ROLES:
            raise ApiError(
                400,
                f"{at}.role is {turn.role[:50]!r}; known are {', '.join(ROLES)} (a system prompt "
                "is given in system)",
                param=f"{at}.role",
            )
        content = joined_text(turn.content, f"{at}.content", PARTS)
        if not content:
            raise ApiError(400, f"{at}.content is empty; give text", param=f"{at}.content")
        messages.append({"role": turn.role, "content": content})
    if messages[-1]["role"] == "assistant":
        raise unsupported(
            "messages",
            "the last message is the assistant's; continuing it is not supported: end with a "
            "message of the user",
        )
    return join_adjacent(messages, ROLES)
