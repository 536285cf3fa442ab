"""The registry of control commands: nothing that is not in it can be called."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from framework.config.complaint import WrongField, convert_struct
from framework.core.control import Call
from framework.core.operations import LATER, Operations
from framework.core.transitions import TRANSITIONS, Operation, Outcome
from hookspecs.errors import CommandError, EngineDeadError, InvalidRequestError
from hookspecs.types.commands import (
    CollectiveRpc,
    CommandArguments,
    Drain,
    GetStatus,
    ListAdapters,
    LoadAdapter,
    Pause,
    PluginCommand,
    ResetPrefixCache,
    Resume,
    Sleep,
    StartProfile,
    StopProfile,
    UnloadAdapter,
    UpdateWeights,
    WakeUp,
)
from hookspecs.types.control import EngineStatus, PauseMode, WakeTag

__all__ = [
    "COMMANDS",
    "Command",
    "check_arguments",
    "command_of",
    "operation_of",
    "perform",
    "shown_name",
]


class Command(msgspec.Struct, frozen=True):
    """A control command."""

    name: str
    arguments: type[CommandArguments]
    result: Any
    """The type of its answer."""
    how: Callable[..., Any]
    """The method of `Operations` that does it."""
    operation: Operation | None = None
    """Its rows of the table; None where arguments decide."""


_ALL: Final = (
    Command("get_status", GetStatus, EngineStatus, Operations.get_status, Operation.GET_STATUS),
    Command("pause", Pause, EngineStatus, Operations.pause),
    Command("resume", Resume, EngineStatus, Operations.resume, Operation.RESUME),
    Command("sleep", Sleep, EngineStatus, Operations.sleep),
    Command("wake_up", WakeUp, EngineStatus, Operations.wake_up),
    Command(
        "reset_prefix_cache",
        ResetPrefixCache,
        bool,
        Operations.reset_prefix_cache,
        Operation.RESET_PREFIX_CACHE,
    ),
    Command(
        "update_weights",
        UpdateWeights,
        EngineStatus,
        Operations.update_weights,
        Operation.UPDATE_WEIGHTS,
    ),
    Command("drain", Drain, EngineStatus, Operations.drain, Operation.DRAIN),
    Command(
        "start_profile", StartProfile, EngineStatus, Operations.start_profile, Operation.WORKERS
    ),
    Command("stop_profile", StopProfile, list[str], Operations.stop_profile, Operation.WORKERS),
    Command(
        "collective_rpc", CollectiveRpc, list[Any], Operations.collective_rpc, Operation.WORKERS
    ),
    Command("list_adapters", ListAdapters, list[str], Operations.list_adapters, Operation.ADAPTERS),
    Command("load_adapter", LoadAdapter, EngineStatus, Operations.load_adapter, Operation.ADAPTERS),
    Command(
        "unload_adapter", UnloadAdapter, EngineStatus, Operations.unload_adapter, Operation.ADAPTERS
    ),
    Command("plugin_command", PluginCommand, Any, Operations.plugin_command, Operation.PLUGIN),
)
COMMANDS: Final = {command.name: command for command in _ALL}
_BY_TYPE: Final = {command.arguments: command for command in _ALL}
_PAUSES: Final = {
    PauseMode.ABORT: Operation.PAUSE_ABORT,
    PauseMode.WAIT: Operation.PAUSE_WAIT,
    PauseMode.KEEP: Operation.PAUSE_KEEP,
}
_SLEEPS: Final = {
    PauseMode.ABORT: Operation.SLEEP_ABORT,
    PauseMode.WAIT: Operation.SLEEP_WAIT,
    PauseMode.KEEP: Operation.SLEEP_KEEP,
}


def command_of(arguments: CommandArguments) -> Command:
    """The command that takes these arguments. CommandError if none does."""
    command = _BY_TYPE.get(type(arguments))
    if command is None:
        raise CommandError(
            f"{type(arguments).__name__} is not the arguments of a command; there are "
            f"{', '.join(each.__name__ for each in _BY_TYPE)}"
        )
    return command


def shown_name(arguments: CommandArguments) -> str:
    """What these arguments call, for people: of a plugin's command its own name."""
    if isinstance(arguments, PluginCommand):
        return arguments.command
    return command_of(arguments).name


def check_arguments(arguments: CommandArguments) -> CommandArguments:
    """The arguments with every field of its type, within its bounds. InvalidRequestError."""
    command = command_of(arguments)
    try:
        given = msgspec.structs.asdict(arguments)
        return convert_struct(command.arguments, given, command.name, "argument")
    except WrongField as error:
        raise InvalidRequestError(
            f"{command.name}: {error.field} is {error.value!r}: {error.what}",
            param=error.field,
            value=error.value,
        ) from error


def operation_of(arguments: CommandArguments) -> Operation:
    """The rows of the table for checked arguments."""
    operation = command_of(arguments).operation
    if operation is not None:
        return operation
    if isinstance(arguments, Pause):
        return _PAUSES[arguments.mode]
    if isinstance(arguments, Sleep):
        return _SLEEPS[arguments.mode]
    tags = arguments.tags if isinstance(arguments, WakeUp) else None
    partly = tags is not None and WakeTag.SCHEDULING not in tags
    return Operation.WAKE_MEMORY if partly else Operation.WAKE_UP


def perform(operations: Operations, call: Call) -> None:
    """Do a command, or refuse it; a failure is the call's. Raised too is what has stopped the
    engine, and what is no error of the command, such as an interrupt."""
    was_alive = operations.plane.alive
    try:
        answer = _answer(operations, call)
    except BaseException as error:
        call.fail(error)
        died = was_alive and not operations.plane.alive
        if died or not isinstance(error, Exception):
            raise
    else:
        if answer is not LATER:
            call.future.set_result(answer)


def _answer(operations: Operations, call: Call) -> Any:
    arguments = check_arguments(call.arguments)
    call.arguments = arguments
    plane = operations.plane
    rule = TRANSITIONS[operation_of(arguments), plane.state]
    if rule.outcome is Outcome.REFUSED:
        raise (CommandError if plane.alive else EngineDeadError)(rule.refusal)
    if rule.outcome is Outcome.NOTHING:
        return operations.status()
    return command_of(arguments).how(operations, call, arguments, rule)
