"""Every bound on a request, as data. Checked before anything costly is done.

Bounds on sampling parameters (n, stop strings, logit_bias, ...) are the engine's:
`ServiceInfo.limits`. Bytes of a body, prompts of a request and time limits are options.
"""

from __future__ import annotations

from dataclasses import dataclass

from builtin_plugins.openai_server.errors import ApiError

__all__ = ["LIMITS", "Limit", "check_limit", "limit_error"]


@dataclass(frozen=True)
class Limit:
    """A bound."""

    name: str
    value: int
    description: str


HEAD_BYTES = Limit("head_bytes", 64 * 1024, "Bytes of a request's line and headers together.")
HEADERS = Limit("headers", 128, "Headers of a request.")
JSON_DEPTH = Limit("json_depth", 64, "Arrays and objects inside each other in a body.")
JSON_VALUES = Limit(
    "json_values", 64 * 1024, "Strings, keys included, arrays and objects of a body together."
)
JSON_ITEMS = Limit(
    "json_items", 1 << 20, "Commas between elements and members of a body, which count its numbers."
)
SEQUENCES = Limit("sequences", 1024, "Outputs of one request: prompts times n.")
MESSAGES = Limit("messages", 4096, "Messages, or input items, of one conversation.")
CONTENT_PARTS = Limit("content_parts", 1024, "Parts of the content of one message.")
TOOLS = Limit("tools", 128, "Tools that one request declares.")
METADATA_ENTRIES = Limit("metadata_entries", 16, "Entries of `metadata`.")
METADATA_KEY = Limit("metadata_key", 64, "Characters of a key of `metadata`.")
METADATA_VALUE = Limit("metadata_value", 512, "Characters of a value of `metadata`.")
USER_CHARS = Limit("user_chars", 256, "Characters of `user`, `cache_salt` and the like.")
TOKENIZE_CHARS = Limit("tokenize_chars", 4 * 1024 * 1024, "Characters that are tokenized at once.")
DETOKENIZE_TOKENS = Limit("detokenize_tokens", 1 << 20, "Token ids that are turned into text.")

LIMITS: tuple[Limit, ...] = (
    HEAD_BYTES,
    HEADERS,
    JSON_DEPTH,
    JSON_VALUES,
    JSON_ITEMS,
    SEQUENCES,
    MESSAGES,
    CONTENT_PARTS,
    TOOLS,
    METADATA_ENTRIES,
    METADATA_KEY,
    METADATA_VALUE,
    USER_CHARS,
    TOKENIZE_CHARS,
    DETOKENIZE_TOKENS,
)


def check_limit(limit: Limit, given: int, param: str | None = None) -> None:
    """ApiError with status 400 when there is more than allowed."""
    if given > limit.value:
        raise limit_error(limit.name, given, limit.value, param)


def limit_error(name: str, given: int | str, allowed: int, param: str | None = None) -> ApiError:
    """What a request above a bound is answered."""
    what = f"`{param}`" if param else "the request"
    return ApiError(
        400,
        f"{what} exceeds the limit {name}: {given} given, at most {allowed} allowed",
        param=param,
        code="limit_exceeded",
    )
