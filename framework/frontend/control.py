"""The control operations of `AsyncLLM`, typed; each is one registered command."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, cast

from framework.frontend.named_commands import plain_result, typed_arguments
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
        return plain_result(name, await self.run_command(typed_arguments(name, arguments)))

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
