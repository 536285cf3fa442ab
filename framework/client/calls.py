"""Commands on their way to engine cores and their answers on the way back."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec

from framework.core.commands import command_of
from framework.process.remote_error import remote_error
from hookspecs.errors import InvalidRequestError
from hookspecs.types.commands import CommandArguments
from hookspecs.types.outputs import UtilityResult

__all__ = ["merged", "new_call_id", "result_of"]

_call_ids = itertools.count(1)


def new_call_id() -> int:
    """Unique in this process."""
    return next(_call_ids)


def result_of(arguments: CommandArguments, answer: UtilityResult) -> Any:
    """The typed result; raises what the engine core raised."""
    if answer.error_type is not None:
        error = remote_error(answer.error_type, answer.error or "")
        if isinstance(error, InvalidRequestError):
            error.param = answer.param
        raise error
    return msgspec.convert(answer.result, command_of(arguments).result)


def merged(results: list[Any]) -> Any:
    """One engine's result is the result; of several: whether all, or the list by engine."""
    if len(results) == 1:
        return results[0]
    return all(results) if all(isinstance(result, bool) for result in results) else results
