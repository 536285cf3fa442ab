"""The conversation of a Messages request as chat messages for the model's template."""

from __future__ import annotations

from builtin_plugins.openai_server.conversation import join_adjacent
from builtin_plugins.openai_server.errors import ApiError
from builtin_plugins.openai_server.limits import CONTENT_PARTS, MESSAGES, check_limit
from builtin_plugins.openai_server.messages_types import CountBody, InputBlock, MessagesBody
from builtin_plugins.openai_server.unsupported import refuse_unsupported, unsupported

__all__ = ["chat_messages", "refuse_features"]

ROLES = ("user", "assistant")
HARMLESS_CHOICES = ({"type": "auto"}, {"type": "none"})


def refuse_features(body: CountBody) -> None:
    """Raise ApiError (400) where the body asks for more than text in and text out."""
    refuse_unsupported(
        {
            "tools": body.tools,
            "mcp_servers": body.mcp_servers,
            "output_config": body.output_config,
            "context_management": body.context_management,
        }
    )
    if body.tool_choice is not None and body.tool_choice not in HARMLESS_CHOICES:
        raise unsupported("tool_choice", "tool_choice names tools, which are not supported")
    if body.thinking is not None and body.thinking.get("type") != "disabled":
        raise unsupported(
            "thinking", 'thinking is not supported; leave it out or give {"type": "disabled"}'
        )
    if isinstance(body, MessagesBody):
        refuse_unsupported({"container": body.container})


def chat_messages(body: CountBody) -> list[dict[str, str]]:
    """The system prompt, then the turns; adjacent turns of one role are one, as the Messages API
    defines. ApiError (400) for roles, blocks and orders that can not be served."""
    if not body.messages:
        raise ApiError(400, "messages is empty; give at least one message", param="messages")
    check_limit(MESSAGES, len(body.messages), "messages")
    messages = []
    if system := _text(body.system or "", "system"):
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
        content = _text(turn.content, f"{at}.content")
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


def _text(content: str | list[InputBlock], at: str) -> str:
    if isinstance(content, str):
        return content
    check_limit(CONTENT_PARTS, len(content), at)
    texts = []
    for position, block in enumerate(content):
        if block.type != "text":
            raise unsupported(
                f"{at}[{position}]",
                f"{at}[{position}] is of type {block.type[:50]!r}; only text blocks are supported",
            )
        if block.text is None:
            raise ApiError(
                400, f"{at}[{position}] is a text block without text", param=f"{at}[{position}]"
            )
        texts.append(block.text)
    return "\n".join(texts)
