"""The forms of `prompt` and `input`: text, token ids, or a list of either."""

from __future__ import annotations

from typing import Any

from builtin_plugins.openai_server.endpoint import Service
from builtin_plugins.openai_server.errors import ApiError
from builtin_plugins.openai_server.limits import limit_error

__all__ = ["prompt_list"]

_FORMS = "text, a list of texts, a list of token ids, or a list of lists of token ids"


def prompt_list(service: Service, param: str, given: str | list[Any]) -> list[str | list[int]]:
    """The prompts of a body, one or more. ApiError (400) for an empty prompt, for a list of
    mixed elements, and for more prompts than `max_prompts`. Vocabulary and length are the
    engine's to check."""
    if isinstance(given, str):
        given = [given]
    if not given:
        raise ApiError(400, f"{param} is an empty list; it must be {_FORMS}", param=param)
    longest = service.engine.info.max_model_len
    if type(given[0]) is int:
        return [_token_ids(param, given, longest)]
    limit = service.options.max_prompts
    if len(given) > limit:
        raise limit_error("max_prompts", len(given), limit, param)
    text = isinstance(given[0], str)
    return [
        _text(f"{param}[{at}]", element) if text else _token_ids(f"{param}[{at}]", element, longest)
        for at, element in enumerate(given)
    ]


def _text(param: str, given: Any) -> str:
    if not isinstance(given, str):
        raise _mixed(param, given)
    if not given:
        raise ApiError(400, f"{param} is empty; it must have at least one token", param=param)
    return given


def _token_ids(param: str, given: Any, longest: int) -> list[int]:
    if not isinstance(given, list):
        raise _mixed(param, given)
    if not given:
        raise ApiError(400, f"{param} is empty; it must have at least one token", param=param)
    # What is too long is refused by the engine, which knows better what to say of it.
    if len(given) <= longest:
        for token_id in given:
            if type(token_id) is not int:
                raise _mixed(param, token_id)
    return given


def _mixed(param: str, element: Any) -> ApiError:
    names = {str: "text", list: "a list", dict: "an object", bool: "a boolean", type(None): "null"}
    kind = names.get(type(element), f"the number {str(element)[:40]}")
    return ApiError(400, f"{param} holds {kind}; it must be {_FORMS}, not mixed", param=param)
