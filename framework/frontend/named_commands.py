"""Commands by name, with arguments and results in plain values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from framework.config.complaint import WrongField, convert_struct
from framework.config.depth import is_nested_within
from framework.core.commands import COMMANDS
from framework.frontend.checks import encodable, invalid, plain, shorten, text
from hookspecs.errors import CommandError, InvalidRequestError
from hookspecs.types.commands import CommandArguments, PluginCommand

__all__ = ["plain_result", "typed_arguments"]

_MAX_NAME: Final = 256
"""Characters; the bound of `PluginCommand.command`."""
_MAX_DEPTH: Final = 64
"""Levels of lists and dicts in an argument of a plugin's command."""
_REFUSALS: Final = (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError)
"""What msgspec raises for values that it can not encode or decode."""


def typed_arguments(name: str, arguments: Mapping[str, Any]) -> CommandArguments:
    """The arguments of a command given by name: of one that the engine has, its own struct, which
    they are checked against; else of a plugin's, which is checked by the engine core, for the
    command is known there alone: here they become the plain values that msgpack makes of them,
    whether or not the core is a process of its own. InvalidRequestError says which is wrong."""
    text("name", name, _MAX_NAME)
    if not isinstance(arguments, Mapping):
        raise invalid("arguments", arguments, "a mapping of the command's arguments")
    known = COMMANDS.get(name)
    try:
        if known is None:
            given = {"command": name, "arguments": _plain_arguments(name, arguments)}
            return convert_struct(PluginCommand, given, name, "argument")
        return convert_struct(known.arguments, dict(arguments), name, "argument")
    except WrongField as error:
        raise InvalidRequestError(
            str(error), param=error.field or "arguments", value=plain(error.value)
        ) from error


def _plain_arguments(command: str, arguments: Mapping[str, Any]) -> dict[Any, Any]:
    """As the core gets them; a name that is no text is left to the check of the struct."""
    values = {}
    for name, value in arguments.items():
        if isinstance(name, str) and not encodable(name):
            raise InvalidRequestError(
                f"{command}: the name of the argument {shorten(name)} has lone surrogates; leave "
                "it out",
                param="arguments",
                value=plain(name),
            )
        try:
            values[name] = msgspec.msgpack.decode(msgspec.msgpack.encode(value))
            if not is_nested_within(_MAX_DEPTH, values[name]):
                raise ValueError(f"it is nested more than {_MAX_DEPTH} levels deep")
        except _REFUSALS as error:
            raise InvalidRequestError(
                f"{command}: {shorten(name)} is {shorten(value)}, which can not be sent to the "
                f"engine core ({error}); arguments are what msgpack encodes: numbers, texts, "
                "bytes, lists and dicts",
                param=str(plain(name)) if isinstance(name, str) else "arguments",
                value=plain(value),
            ) from error
    return values


def plain_result(name: str, result: Any) -> Any:
    """What a command gave, in plain values. CommandError for what has no such form."""
    try:
        return msgspec.to_builtins(result, enc_hook=_plain_value)
    except TypeError as error:
        raise CommandError(f"{name} was done, but its result can not be given: {error}") from (
            error
        )


def _plain_value(value: Any) -> Any:
    """Arrays and tensors, which the answer of a worker may hold, as lists."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"a {type(value).__name__} has no plain form")
