"""Fields of known forms of request whose features do not exist here, as data.

What asks for such a feature is refused; what asks for nothing is taken, since clients send it by
default. Fields that are hints, or about storing and billing, are taken and have no effect.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

import msgspec

from builtin_plugins.openai_server.errors import ApiError

__all__ = ["SHARED", "WITHOUT_EFFECT", "Features", "refuse_features", "unsupported"]

WITHOUT_EFFECT: Final = "without effect"

Neutral: TypeAlias = tuple[Any, ...] | Literal["without effect"] | Mapping[str, "Neutral"]
"""Values of a field that ask for nothing, besides null, false and empty ones (an object stands for
all that have its members); or WITHOUT_EFFECT; or the same of each member of an object."""
Features: TypeAlias = Mapping[str, Neutral]
"""Field to its neutral values."""

SHARED: Final[Features] = {
    "store": WITHOUT_EFFECT,
    "prompt_cache_key": WITHOUT_EFFECT,
    "prompt_cache_retention": WITHOUT_EFFECT,
    "reasoning_effort": WITHOUT_EFFECT,
    "verbosity": WITHOUT_EFFECT,
    "parallel_tool_calls": WITHOUT_EFFECT,
    "max_tool_calls": WITHOUT_EFFECT,
    "service_tier": ("auto", "default", "flex", "priority"),
    "tools": (),
    "tool_choice": ("none", "auto"),
    "functions": (),
    "function_call": ("none", "auto"),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
    "audio": (),
    "prediction": (),
    "web_search_options": (),
    "continue_final_message": (),
    "suffix": (),
}
"""Of the OpenAI forms; each has some of them."""

_CHOICES: Final = {"tools": "tool_choice", "functions": "function_call"}
"""The field that says whether tools may be used."""


def unsupported(param: str, message: str) -> ApiError:
    """The answer to a request for something that does not exist here."""
    return ApiError(400, message, param=param, code="unsupported")


def refuse_features(body: msgspec.Struct, features: Features) -> None:
    """Raise ApiError (400) for the first of the features that the body has and asks for. Tools are
    taken with the choice `none`, which says not to use them."""
    for name, neutral in features.items():
        choice = getattr(body, _CHOICES.get(name, ""), None)
        if choice != "none" and not _matches(choice, {"type": "none"}):
            _check(name, getattr(body, name, None), neutral)


def _check(name: str, value: Any, neutral: Neutral) -> None:
    if neutral == WITHOUT_EFFECT or not _asks_for_something(value):
        return
    if isinstance(neutral, Mapping):
        for member, inner in value.items():
            _check(f"{name}.{member[:64]}", inner, neutral.get(member, ()))
        return
    if any(_matches(value, one) for one in neutral):
        return
    shown = " or ".join(msgspec.json.encode(one).decode() for one in neutral)
    instead = f"leave it out or give {shown}" if shown else "leave it out"
    raise unsupported(name, f"{name} as given is not supported; {instead}")


def _matches(value: Any, neutral: Any) -> bool:
    if isinstance(value, dict) and isinstance(neutral, dict):
        return all(value.get(name) == member for name, member in neutral.items())
    return bool(value == neutral)


def _asks_for_something(value: Any) -> bool:
    """False for null, false, empty values and objects of nothing but those."""
    if isinstance(value, dict):
        return any(_asks_for_something(member) for member in value.values())
    return value is not None and value is not False and value not in ("", [])
