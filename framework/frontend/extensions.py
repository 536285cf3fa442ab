"""`SamplingParams.extensions`: options of one request for the plugins that take part in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from framework.config.complaint import WrongField, convert_struct
from framework.config.suggest import suggestion
from framework.frontend.checks import invalid, plain, shorten
from hookspecs.errors import InvalidRequestError
from hookspecs.types.sampling import SamplingLimits

__all__ = ["check_extensions", "convert_extensions"]


def check_extensions(extensions: object, limits: SamplingLimits) -> None:
    """Form and size, whatever the plugins say: a dict by name that can cross processes."""
    if not isinstance(extensions, dict) or not all(isinstance(key, str) for key in extensions):
        raise invalid("extensions", extensions, "a dict of provider name to options")
    if not extensions:
        return
    try:
        size = len(msgspec.msgpack.encode(extensions))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidRequestError(
            f"extensions can not be sent to the engine: {error}",
            param="extensions",
            value=shorten(extensions),
        ) from error
    if size > limits.max_extension_bytes:
        raise InvalidRequestError(
            f"extensions have {size} bytes; at most {limits.max_extension_bytes} are allowed",
            param="extensions",
            value=size,
        )


def convert_extensions(
    extensions: Mapping[str, Any], known: Mapping[str, type[msgspec.Struct]]
) -> dict[str, Any]:
    """Plain values of what passed `check_extensions`, each checked against its provider's
    `request_options` (`known`), with defaults filled in. InvalidRequestError for the first name,
    field or value that is wrong."""
    converted = {}
    for name, given in extensions.items():
        if name not in known:
            raise InvalidRequestError(
                f"extensions.{name[:80]}: no provider with this name takes options of a request; "
                f"there are: {', '.join(sorted(known)) or 'none'}.{suggestion(name[:80], known)}",
                param="extensions",
                value=plain(name),
            )
        converted[name] = msgspec.to_builtins(_convert(f"extensions.{name}", given, known[name]))
    return converted


def _convert(place: str, given: Any, options: type[msgspec.Struct]) -> msgspec.Struct:
    # Also a struct is made plain first: constructing one checks nothing.
    values = msgspec.to_builtins(given)
    try:
        return convert_struct(options, values, place)
    except WrongField as error:
        raise InvalidRequestError(
            str(error)[:512], param=error.where, value=shorten(error.value)
        ) from error
