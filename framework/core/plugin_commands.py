"""`PluginCommands`: the engine commands of plugins, of which none can harm the engine by raising.

Core process, main thread, between two steps.
"""

from __future__ import annotations

import logging
import reprlib
from collections.abc import Mapping
from contextlib import ExitStack
from time import perf_counter
from typing import Any, Final, NamedTuple

import msgspec

from framework.config.complaint import WrongField, convert_struct
from framework.config.suggest import suggestion
from framework.core.commands import COMMANDS
from framework.core.engine_view import LentEngine
from framework.plugins.calls import Calls
from framework.plugins.command_arguments import wrong_arguments
from framework.plugins.counters import Counter
from framework.plugins.failure import bounded, describe
from framework.plugins.manager import PluginManager
from framework.plugins.registry import RegisteredProvider
from hookspecs.contracts.engine_command import EngineCommand
from hookspecs.errors import (
    CommandError,
    ContractViolation,
    FrameworkError,
    InvalidRequestError,
)
from hookspecs.events import PluginFailed
from hookspecs.info import ProcessRole
from hookspecs.kinds import PLUGIN_KINDS

__all__ = ["PluginCommands"]

logger = logging.getLogger("framework.core")
_KIND: Final = "engine_command"


class _Offered(NamedTuple):
    found: RegisteredProvider
    command: EngineCommand
    counter: Counter


class PluginCommands:
    """Made when the engine starts; `close` is the last call."""

    def __init__(self, plugins: PluginManager, engine: LentEngine, engine_index: int) -> None:
        """ProviderError, ContractViolation for a command that can not be constructed."""
        self._engine = engine
        self._calls: Calls = plugins.calls
        self._plugin_of = plugins.plugin_of
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
        command raises them; CommandError for whatever else goes wrong in it, put down to the
        plugin in whose code it was raised."""
        if name not in self._offered:
            raise InvalidRequestError(self._unknown(name), param="name", value=name)
        found, command, counter = self._offered[name]
        begin = perf_counter()
        counter.calls += 1
        try:
            with self._engine.lent():
                try:
                    answer = command.run(_converted(name, arguments, command.Arguments))
                except KeyboardInterrupt:
                    raise
                except (InvalidRequestError, CommandError) as error:
                    if error.args and isinstance(error.args[0], str):
                        error.args = (bounded(error.args[0]), *error.args[1:])
                    raise
                except BaseException as error:
                    raise self._raised(found, error) from error
        finally:
            counter.seconds += perf_counter() - begin
        try:
            return msgspec.msgpack.decode(msgspec.msgpack.encode(answer))
        except Exception as error:
            what = (
                f"{name} was done, but its result can not be given: plugin {found.ref.name!r} made "
                f"what msgspec can not encode: {describe(error)}"
            )
            self._failed(found, found.ref.name, found.kind.hook, error, "failed", "command failed")
            raise CommandError(what) from error

    def close(self) -> None:
        """Each command is told, whatever the others raise. Safe to call twice."""
        offered, self._offered = self._offered, {}
        with ExitStack() as stack:  # goes on where an observer of a failure raises
            for each in reversed(offered.values()):
                stack.callback(self._close, each)

    def _close(self, offered: _Offered) -> None:
        found, command, _ = offered
        try:
            command.close()
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            how = "raised when it was closed"
            self._failed(found, found.ref.name, found.kind.hook, error, how, "logged")

    def _raised(self, found: RegisteredProvider, error: BaseException) -> CommandError:
        """What the caller gets for what came out of `run`, while the engine is lent. What kernel
        and executor say of workers is nobody's failure."""
        name, from_workers = found.provider.name, self._engine.came_from_workers(error)
        if from_workers and isinstance(error, FrameworkError | TimeoutError):
            return CommandError(f"{name}: {describe(error)}")
        plugin, hook, how = found.ref.name, found.kind.hook, "failed"
        raised_by = self._plugin_of(error)
        if raised_by not in (None, plugin):
            plugin, how = raised_by, f"failed in code of plugin {raised_by!r}"
            hook = PLUGIN_KINDS["worker"].hook if from_workers else hook
        self._failed(found, plugin, hook, error, how, "command failed")
        return CommandError(f"{name}: plugin {plugin!r} raised {describe(error)}")

    def _failed(
        self,
        found: RegisteredProvider,
        plugin: str,
        hook: str,
        error: BaseException,
        how: str,
        action: str,
    ) -> None:
        """Log, count, tell observers. `plugin`, `hook`: whose failure it is."""
        self._calls.counter(plugin, hook).errors += 1
        logger.error(
            "the engine command %r of %s %s", found.provider.name, found.ref, how, exc_info=error
        )
        self._calls.on_plugin_failed(
            PluginFailed(
                plugin=plugin,
                hook=hook,
                error=describe(error),
                action=action,
                role=ProcessRole.CORE,
            )
        )

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
    try:
        return convert_struct(struct, arguments, name, "argument")
    except WrongField as error:
        given = f"; {error.field} is {reprlib.repr(error.value)}" if error.field else ""
        raise InvalidRequestError(
            f"{error}{given}", param=error.field or "arguments", value=error.value
        ) from error
