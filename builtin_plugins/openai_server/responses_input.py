"""The input of a Responses request as chat messages for the model's template."""

from __future__ import annotations

from builtin_plugins.openai_server.conversation import join_adjacent
from builtin_plugins.openai_server.errors import ApiError
from builtin_plugins.openai_server.limits import CONTENT_PARTS, MESSAGES, check_limit
from builtin_plugins.openai_server.responses_types import InputItem, InputPart, ResponsesBody
from builtin_plugins.openai_server.unsupported import refuse_unsupported, unsupported

__all__ = ["chat_messages", "refuse_features", "wants_logprobs"]

LOGPROBS = "message.output_text.logprobs"
PART_TYPES = ("input_text", "output_text")
ROLES = {"user": "user", "assistant": "assistant", "system": "system", "developer": "system"}
"""`developer` is the newer name of `system`; templates know only the latter."""


def wants_logprobs(body: ResponsesBody) -> bool:
    """Whether the log-probabilities of the output's tokens are asked for."""
    return LOGPROBS in (body.include or ())


def refuse_features(body: ResponsesBody) -> None:
    """Raise ApiError (400) where the body asks for more than text in and text out."""
    refuse_unsupported(
        {
            "previous_response_id": body.previous_response_id,
            "conversation": body.conversation,
            "prompt": body.prompt,
            "tools": body.tools,
            "reasoning": body.reasoning,
            "background": body.background,
            "context_management": body.context_management,
            "moderation": body.moderation,
            "stream_options": body.stream_options,
        }
    )
    _refuse_text_options(body.text or {})
    for name in body.include or ():
        if name != LOGPROBS:
            raise unsupported("include", f"include has {name[:80]!r}; supported is {LOGPROBS!r}")
    if body.top_logprobs and not wants_logprobs(body):
        raise ApiError(
            400,
            f"top_logprobs is given without {LOGPROBS!r} in include; add it there",
            param="top_logprobs",
        )
    if body.tool_choice not in (None, "auto", "none"):
        raise unsupported("tool_choice", "tool_choice names tools, which are not supported")
    if body.truncation not in (None, "disabled"):
        raise unsupported(
            "truncation", f"truncation is {body.truncation[:50]!r}; only 'disabled' is supported"
        )
    if body.service_tier not in (None, "auto", "default"):
        raise unsupported(
            "service_tier",
            f"service_tier is {body.service_tier[:50]!r}; supported are 'auto' and 'default'",
        )


def _refuse_text_options(text: dict[str, object]) -> None:
    for name, value in text.items():
        if name == "format" and value not in (None, {"type": "text"}):
            raise unsupported("text.format", 'text.format must be {"type": "text"}')
        if name == "verbosity" and value not in (None, "medium"):
            raise unsupported("text.verbosity", "text.verbosity is not supported; leave it out")
        if name not in ("format", "verbosity"):
            raise ApiError(400, f"text has no member {name[:50]!r}; known is format", param="text")


def chat_messages(body: ResponsesBody) -> list[dict[str, str]]:
    """The instructions as a system message, then the input; adjacent system messages are one.
    ApiError (400) for items, roles and parts that can not be served."""
    messages = []
    if body.instructions:
        messages.append({"role": "system", "content": body.instructions})
    if not body.input:
        raise ApiError(400, "input is empty; give text or items", param="input")
    if isinstance(body.input, str):
        messages.append({"role": "user", "content": body.input})
    else:
        check_limit(MESSAGES, len(body.input), "input")
        messages += [_message(item, f"input[{at}]") for at, item in enumerate(body.input)]
    return join_adjacent(messages, ("system",))


def _message(item: InputItem, at: str) -> dict[str, str]:
    if item.type != "message":
        raise unsupported(at, f"{at} is of type {item.type[:50]!r}; only messages are supported")
    role = ROLES.get(item.role)
    if role is None:
        raise ApiError(
            400,
            f"{at} has the role {item.role[:50]!r}; known are {', '.join(ROLES)}",
            param=f"{at}.role",
        )
    if not item.content:
        raise ApiError(400, f"{at} has no content; give text", param=f"{at}.content")
    if isinstance(item.content, str):
        return {"role": role, "content": item.content}
    check_limit(CONTENT_PARTS, len(item.content), f"{at}.content")
    parts = [_text(part, f"{at}.content[{n}]") for n, part in enumerate(item.content)]
    return {"role": role, "content": "\n".join(parts)}


def _text(part: InputPart, at: str) -> str:
    if part.type not in PART_TYPES:
        raise unsupported(
            at, f"{at} is of type {part.type[:50]!r}; supported are {', '.join(PART_TYPES)}"
        )
    if part.text is None:
        raise ApiError(400, f"{at} has no text", param=at)
    return part.text
