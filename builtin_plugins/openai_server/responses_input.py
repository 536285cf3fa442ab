"""The input of a Responses request as chat messages for the model's template."""

from __future__ import annotations

from typing import Final

from builtin_plugins.openai_server.content import joined_text
from builtin_plugins.openai_server.conversation import join_adjacent
from builtin_plugins.openai_server.errors import ApiError
from builtin_plugins.openai_server.features import (
    SHARED,
    WITHOUT_EFFECT,
    Features,
    refuse_features,
    unsupported,
)
from builtin_plugins.openai_server.limits import MESSAGES, check_limit
from builtin_plugins.openai_server.responses_types import InputItem, ResponsesBody

__all__ = ["chat_messages", "check_features", "wants_logprobs"]

LOGPROBS: Final = "message.output_text.logprobs"
ENCRYPTED_REASONING: Final = "reasoning.encrypted_content"
"""There is no reasoning, so nothing to include."""
PARTS: Final = ("input_text", "output_text")
ASSISTANT_PARTS: Final = (*PARTS, "refusal")
ROLES = {"user": "user", "assistant": "assistant", "system": "system", "developer": "system"}
"""`developer` is the newer name of `system`; templates know only the latter."""
FEATURES: Final[Features] = {
    **SHARED,
    "previous_response_id": (),
    "conversation": (),
    "prompt": (),
    "background": (),
    "context_management": (),
    "moderation": (),
    "reasoning": {
        "effort": WITHOUT_EFFECT,
        "summary": WITHOUT_EFFECT,
        "generate_summary": WITHOUT_EFFECT,
    },
    "stream_options": {"include_obfuscation": WITHOUT_EFFECT, "include_usage": WITHOUT_EFFECT},
    "text": {"format": ({"type": "text"},), "verbosity": WITHOUT_EFFECT},
    "truncation": ("disabled",),
}


def wants_logprobs(body: ResponsesBody) -> bool:
    """Whether the log-probabilities of the output's tokens are asked for."""
    return LOGPROBS in (body.include or ())


def check_features(body: ResponsesBody) -> None:
    """Raise ApiError (400) where the body asks for more than text in and text out."""
    refuse_features(body, FEATURES)
    for name in body.include or ():
        if name not in (LOGPROBS, ENCRYPTED_REASONING):
            raise unsupported("include", f"include has {name[:80]!r}; supported is {LOGPROBS!r}")
    if body.top_logprobs and not wants_logprobs(body):
        raise ApiError(
            400,
            f"top_logprobs is given without {LOGPROBS!r} in include; add it there",
            param="top_logprobs",
        )


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
    if item.content is None:
        raise ApiError(400, f"{at} has no content; give text", param=f"{at}.content")
    types = ASSISTANT_PARTS if role == "assistant" else PARTS
    return {"role": role, "content": joined_text(item.content, f"{at}.content", types)}
