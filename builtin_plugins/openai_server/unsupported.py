"""Refusals of what a known form of request has and this server has not."""

from __future__ import annotations

from typing import Any

from builtin_plugins.openai_server.errors import ApiError

__all__ = ["asks_for_something", "refuse_unsupported", "unsupported"]


def unsupported(param: str, message: str) -> ApiError:
    """The answer to a request for something that does not exist here."""
    return ApiError(400, message, param=param, code="unsupported")


def asks_for_something(value: Any) -> bool:
    """False for null, false, empty values and objects of nothing but those: clients send them
    for features that they do not use."""
    if isinstance(value, dict):
        return any(asks_for_something(member) for member in value.values())
    return value is not None and value is not False and value not in ("", [])


def refuse_unsupported(fields: dict[str, Any]) -> None:
    """Raise for the first of the fields, by name, whose value asks for something."""
    for name, value in fields.items():
        if asks_for_something(value):
            raise unsupported(name, f"{name} is not supported; leave it out")
