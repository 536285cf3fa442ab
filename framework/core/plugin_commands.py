"""`PluginCommands`: the engine commands of plugins, of which none can harm the engine by raising.

Core process, main thread, between two steps.
"""

from __future__ import annotations

import logging
import re
import reprlib
from collections.abc import Mapping
from time import perf_counter
from typing import Any, Final, NamedTuple

import msgspec

from framework.config.suggest import suggestion
from framework.core.commands import COMMANDS
from framework.core.engine_view import LentEngine
from framework.plugins.calls import Calls
from framework.plugins.command_arguments import wrong_arguments
from framework.plugins.counters import Counter
from framework.plugins.failure import describe
from framework.plugins.manager import PluginManager
from framework.plugins.registry import RegisteredProvider
from hookspecs.contracts.engine_command import EngineCommand
from hookspecs.errors import (
    CommandError,
    ContractViolation,
    InvalidRequestError,
    PluginConflictError,
)
from hookspecs.events import PluginFailed
from hookspecs.info import ProcessRole

__all__ = ["PluginCommands", "check_names"]

logger = logging.getLogger("framework.core")
_KIND: Final = "engine_command"
_FIELD: Final = re.compile(r"`(?:\$\.)?(\w+)[^`]*`$")
"""Where msgspec's message says which field is wrong: at its end."""


class _Offered(NamedTuple):
    found: RegisteredProvider
    command: EngineCommand
    counter: Counter


def check_names(plugins: PluginManager) -> None:
    """PluginConflictError when a plugin provides a command that is built in."""
    for found in plugins.providers(_KIND):
        name = found.provider.name
        if name in COMMANDS:
            raise PluginConflictError(
                f"{found.ref} provides the engine command {name!r}, which the engine has itself "
                "(framework.core) and which can not be replaced. Rename it in the plugin, or "
                "block the plugin with plugins.block",
                plugin=found.ref.name,
                distribution=found.ref.distribution,
                hook=found.kind.hook,
            )


class PluginCommands:
    """Made when the engine starts; `close` is the last call."""

    def __init__(self, plugins: PluginManager, engine: LentEngine, engine_index: int) -> None:
        """ProviderError, ContractViolation for a command that can not be constructed."""
        self._engine = engine
        self._calls: Calls = plugins.calls
        self._why_absent = plugins.registry.why_absent(_KIND)
        self._offered: dict[str, _Offered] = {}
        try:
            for found in plugins.providers(_KIND):
                name = found.provider.name
                command: EngineCommand = plugins.create(
                    _KIND, name, engine=engine, engine_index=engine_index
                )
                counter = plugins.calls.counter(found.ref.name, found.kind.hook)
                self._offered[name] = _Offered(found, command, counter)
                _check_arguments(found, command)
        except BaseException:
            self.close()
            raise

    def run(self, name: str, arguments: Mapping[str, Any]) -> Any:
        """The answer in plain values, the same as a front end in another process gets.
        InvalidRequestError for an unknown name or wrong arguments; that and CommandError as the
        command raises them; CommandError for whatever else goes wrong in it."""
        if name not in self._offered:
            raise InvalidRequestError(self._unknown(name), param="name", value=name)
        found, command, counter = self._offered[name]
        begin = perf_counter()
        counter.calls += 1
        try:
            given = _converted(name, arguments, command.Arguments)
            with self._engine.lent():
                answer = command.run(given)
        except (InvalidRequestError, CommandError, KeyboardInterrupt):
            raise
        except BaseException as error:
            what = f"{name}: plugin {found.ref.name!r} raised {describe(error)}"
            raise self._failure(found, counter, error, what) from error
        finally:
            counter.seconds += perf_counter() - begin
        try:
            return msgspec.msgpack.decode(msgspec.msgpack.encode(answer))
        except Exception as error:
            what = (
                f"{name} was done, but its result can not be given: plugin {found.ref.name!r} made "
                f"what msgspec can not encode: {describe(error)}"
            )
            raise self._failure(found, counter, error, what) from error

    def close(self) -> None:
        """Each command is told, whatever the others raise. Safe to call twice."""
        offered, self._offered = self._offered, {}
        for name, (found, command, _) in offered.items():
            try:
                command.close()
            except KeyboardInterrupt:
                raise
            except BaseException:
                logger.exception(
                    "the engine command %r of %s raised when it was closed", name, found.ref
                )

    def _failure(
        self, found: RegisteredProvider, counter: Counter, error: BaseException, what: str
    ) -> CommandError:
        """Log, count, tell observers; returns what the caller gets."""
        counter.errors += 1
        logger.error(
            "the engine command %r of %s failed", found.provider.name, found.ref, exc_info=error
        )
        self._calls.on_plugin_failed(
            PluginFailed(
                plugin=found.ref.name,
                hook=found.kind.hook,
                error=describe(error),
                action="command failed",
                role=ProcessRole.CORE,
            )
        )
        return CommandError(what)

    def _unknown(self, name: str) -> str:
        if name in COMMANDS:
            return f"{name!r} is a command of the engine itself; call it by its own name"
        own = ", ".join(self._offered) or "none"
        return (
            f"there is no command {name!r}; the engine has {', '.join(sorted(COMMANDS))}; plugins "
            f"provide {own}.{suggestion(name, {*COMMANDS, *self._offered})}{self._why_absent}"
        )


def _check_arguments(found: RegisteredProvider, command: EngineCommand) -> None:
    wrong = wrong_arguments(type(command))
    if wrong is not None:
        raise ContractViolation(
            f"engine command {found.provider.name!r} of {found.ref}: {wrong}",
            plugin=found.ref.name,
            distribution=found.ref.distribution,
            hook=found.kind.hook,
        )


def _converted(name: str, arguments: Mapping[str, Any], struct: type[msgspec.Struct]) -> Any:
    """The struct of the arguments. InvalidRequestError says which is wrong."""
    known = struct.__struct_encode_fields__
    for given in arguments:
        if given not in known:
            raise InvalidRequestError(
                f"{name} has no argument {given!r}; there are: {', '.join(known) or 'none'}."
                f"{suggestion(given, known)}",
                param=given,
                value=arguments[given],
            )
    try:
        return msgspec.convert(arguments, struct)
    except msgspec.ValidationError as error:
        what, _, path = str(error).partition(" - at `$.")
        field = _FIELD.search(str(error))
        param = field[1] if field is not None else "arguments"
        value = arguments.get(param)
        shown = f"{path.rstrip('`')}: {what}; {param} is {reprlib.repr(value)}" if path else what
        raise InvalidRequestError(f"{name}: {shown}", param=param, value=value) from error
