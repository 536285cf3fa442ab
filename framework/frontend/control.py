"""The control operations of `AsyncLLM`, typed; each is one registered command."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

import msgspec

from framework.core.commands import COMMANDS
from framework.frontend.checks import invalid, plain
from hookspecs.errors import CommandError, InvalidRequestError
from hookspecs.types.commands import (
    CollectiveRpc,
    CommandArguments,
    GetStatus,
    ListAdapters,
    LoadAdapter,
    Pause,
    ResetPrefixCache,
    Resume,
    Sleep,
    StartProfile,
    StopProfile,
    UnloadAdapter,
    UpdateWeights,
    WakeUp,
)
from hookspecs.types.control import EngineState, EngineStatus, PauseMode, WakeTag

__all__ = ["AsyncControl"]

_FIELD: Final = re.compile(r"`(?:\$\.)?(\w+)[^`]*`$")
"""Where msgspec's message says which field is wrong: at its end."""


class AsyncControl(ABC):
    """What each does in which state is in `docs/control.md`; modes and tags may be given as text.
    All raise CommandError when the engine's state does not allow it, InvalidRequestError for a
    wrong argument, UnsupportedFeatureError for what the worker does not declare, EngineDeadError
    once the engine has stopped. Cancelling one gives up its answer; what it began goes on."""

    @abstractmethod
    async def run_command(self, arguments: CommandArguments) -> Any:
        """Run a control command; its typed result."""

    async def command(self, name: str, arguments: Mapping[str, Any]) -> Any:
        """See `EngineClient.command`."""
        result = await self.run_command(_typed(name, arguments))
        try:
            return msgspec.to_builtins(result, enc_hook=_plain_value)
        except TypeError as error:
            raise CommandError(f"{name} was done, but its result can not be given: {error}") from (
                error
            )

    async def status(self) -> EngineStatus:
        """The engine's state."""
        status: EngineStatus = await self.run_command(GetStatus())
        return status

    async def pause(
        self, mode: PauseMode | str = PauseMode.ABORT, *, clear_cache: bool = True
    ) -> EngineStatus:
        """Stop scheduling; returns when nothing runs any more. Requests that are in the engine
        end (`abort`), run to their end if they have started (`wait`), or freeze (`keep`)."""
        arguments = Pause(mode=cast(PauseMode, mode), clear_cache=clear_cache)
        status: EngineStatus = await self.run_command(arguments)
        return status

    async def resume(self) -> EngineStatus:
        """Schedule again."""
        status: EngineStatus = await self.run_command(Resume())
        return status

    async def is_paused(self) -> bool:
        """Whether nothing is scheduled."""
        return (await self.status()).pause_mode is not None

    async def sleep(
        self, level: int = 1, *, mode: PauseMode | str = PauseMode.ABORT
    ) -> EngineStatus:
        """Pause, then give memory back: 0 none, 1 the KV cache (weights stay in host memory),
        2 both."""
        arguments = Sleep(level=level, mode=cast(PauseMode, mode))
        status: EngineStatus = await self.run_command(arguments)
        return status

    async def wake_up(self, tags: Sequence[WakeTag | str] | None = None) -> EngineStatus:
        """Bring memory back (`weights`, `kv_cache`), and schedule again (`scheduling`); without
        tags all of it."""
        wanted = tags if tags is None or isinstance(tags, str) else tuple(tags)
        arguments = WakeUp(tags=cast("tuple[WakeTag, ...] | None", wanted))
        status: EngineStatus = await self.run_command(arguments)
        return status

    async def is_sleeping(self) -> bool:
        """Whether some memory is given back, or scheduling sleeps."""
        return (await self.status()).state in (EngineState.SLEEPING, EngineState.WAKING)

    async def reset_prefix_cache(self, *, preempt_running: bool = False) -> bool:
        """Forget all cached blocks. False, and nothing happens, while requests use blocks, unless
        these are to be computed again."""
        return bool(await self.run_command(ResetPrefixCache(preempt_running=preempt_running)))

    async def update_weights(
        self,
        path: str | None = None,
        *,
        tensors: Mapping[str, Any] | None = None,
        version: str = "",
    ) -> EngineStatus:
        """Replace weights in place, from safetensors files or from arrays by checkpoint name. The
        engine must be paused, or have no requests."""
        arguments = UpdateWeights(
            path=path, tensors=None if tensors is None else dict(tensors), version=version
        )
        status: EngineStatus = await self.run_command(arguments)
        return status

    async def start_profile(self, directory: str) -> EngineStatus:
        """Record what the workers compute."""
        status: EngineStatus = await self.run_command(StartProfile(directory=directory))
        return status

    async def stop_profile(self) -> list[str]:
        """Write the traces; their paths."""
        paths: list[str] = await self.run_command(StopProfile())
        return paths

    async def collective_rpc(
        self, command: str, args: Sequence[Any] = (), *, timeout_s: float | None = None
    ) -> list[Any]:
        """Run a command that the workers register; results in the order of ranks."""
        arguments = CollectiveRpc(command=command, args=tuple(args), timeout_s=timeout_s)
        results: list[Any] = await self.run_command(arguments)
        return results

    async def list_adapters(self) -> list[str]:
        """Names of the loaded adapters."""
        names: list[str] = await self.run_command(ListAdapters())
        return names

    async def load_adapter(self, name: str, path: str) -> None:
        """Load an adapter from a directory."""
        await self.run_command(LoadAdapter(name=name, path=path))

    async def unload_adapter(self, name: str) -> None:
        """Forget an adapter."""
        await self.run_command(UnloadAdapter(name=name))


def _typed(name: str, arguments: Mapping[str, Any]) -> CommandArguments:
    """The arguments of a command given by name. InvalidRequestError says which is wrong."""
    known = COMMANDS.get(name) if isinstance(name, str) else None
    if known is None:
        raise invalid("name", name, f"one of {', '.join(sorted(COMMANDS))}")
    if not isinstance(arguments, Mapping):
        raise invalid("arguments", arguments, "a mapping of the command's arguments")
    try:
        return msgspec.convert(dict(arguments), known.arguments)
    except msgspec.ValidationError as error:
        field = _FIELD.search(str(error))
        param = field[1] if field is not None else "arguments"
        raise InvalidRequestError(
            f"{name}: {error}", param=param, value=plain(arguments.get(param))
        ) from error


def _plain_value(value: Any) -> Any:
    """Arrays and tensors, which the answer of a worker may hold, as lists."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"a {type(value).__name__} has no plain form")
