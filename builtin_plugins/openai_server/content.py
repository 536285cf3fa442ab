"""The content of messages: text, or parts of text."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from builtin_plugins.openai_server.errors import ApiError
from builtin_plugins.openai_server.features import unsupported
from builtin_plugins.openai_server.limits import CONTENT_PARTS, check_limit

__all__ = ["ContentPart", "joined_text"]


class ContentPart(msgspec.Struct, kw_only=True):
    """A part of a message's content. Only parts of text are served, and refusals that an assistant
    gave before; what parts carry besides (annotations, logprobs, cache_control) is not read."""

    type: str
    text: str | None = None
    refusal: str | None = None


def joined_text(content: str | Sequence[ContentPart], at: str, types: Collection[str]) -> str:
    """The text of a content, its parts joined by line breaks; without parts it is empty.

    `at`: its place in the body. `types`: the types of parts that are served. ApiError (400) for
    other parts, and parts without text."""
    if isinstance(content, str):
        return content
    check_limit(CONTENT_PARTS, len(content), at)
    return "\n".join(_text(part, f"{at}[{n}]", types) for n, part in enumerate(content))


def _text(part: ContentPart, at: str, types: Collection[str]) -> str:
    if part.type not in types:
        known = ", ".join(types)
        raise unsupported(at, f"{at} is of type {part.type[:50]!r}; supported here: {known}")
    text = part.refusal if part.type == "refusal" else part.text
    if text is None:
        raise ApiError(400, f"{at} is of type {part.type!r} but has no text", param=at)
    return text
