"""What a filter may return, hook by hook."""

from __future__ import annotations

from typing import Any

import msgspec

from hookspecs.config import EngineConfig
from hookspecs.events import ConfigResolved, OutputReady, RequestReceived, RequestRejected

__all__ = ["check_config", "check_output", "check_request"]


def check_config(before: ConfigResolved, after: Any) -> str | None:
    """A valid configuration that loads the same plugins: these are loaded already."""
    if not isinstance(after, ConfigResolved):
        return _wrong_type("ConfigResolved or None", after)
    if not isinstance(after.config, EngineConfig):
        return f"config is {after.config!r}; it must be an EngineConfig"
    try:
        # Constructing a struct checks neither types nor bounds; converting does.
        msgspec.convert(msgspec.to_builtins(after.config), EngineConfig, strict=True)
    except (msgspec.ValidationError, TypeError, ValueError) as error:
        return f"the configuration it returned is not valid: {error}"
    old, new = before.config.plugins, after.config.plugins
    for field in ("activation", "enable", "block", "required"):
        if getattr(old, field) != getattr(new, field):
            return (
                f"it changed plugins.{field} from {getattr(old, field)!r} to "
                f"{getattr(new, field)!r}; it is too late, plugins are loaded"
            )
    return None


def check_request(before: RequestReceived, after: Any) -> str | None:
    """The same request, changed, or its rejection."""
    if isinstance(after, RequestRejected):
        return None
    if not isinstance(after, RequestReceived):
        return _wrong_type("RequestReceived, RequestRejected or None", after)
    return _same_request(before.request_id, after.request_id)


def check_output(before: OutputReady, after: Any) -> str | None:
    """An output of the same request."""
    if not isinstance(after, OutputReady):
        return _wrong_type("OutputReady or None", after)
    return _same_request(before.output.request_id, after.output.request_id)


def _same_request(before: str, after: str) -> str | None:
    return None if before == after else f"it changed the request id from {before!r} to {after!r}"


def _wrong_type(allowed: str, value: object) -> str:
    return f"it returned {type(value).__name__} {value!r}; it must return {allowed}"
