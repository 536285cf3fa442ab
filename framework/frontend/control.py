"""The control operations of `AsyncLLM`, typed; each is one registered command."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

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
    """What each does in which state is in `docs/control.md`. All raise CommandError when the
    state does not allow it, UnsupportedFeatureError when a plugin can not do it, and
    EngineDeadError."""

    @abstractmethod
    async def run_command(self, arguments: CommandArguments) -> Any:
        """Run a control command; its typed result."""

    async def status(self) -> EngineStatus:
        """The engine's state."""
        status: EngineStatus = await self.run_command(GetStatus())
        return status

    async def pause(
        self, mode: PauseMode = PauseMode.ABORT, *, clear_cache: bool = True
    ) -> EngineStatus:
        """Returns when nothing runs any more."""
        arguments = Pause(mode=mode, clear_cache=clear_cache)
        status: EngineStatus = await self.run_command(arguments)
        return status

    async def resume(self) -> EngineStatus:
        """Schedule again."""
        status: EngineStatus = await self.run_command(Resume())
        return status

    async def is_paused(self) -> bool:
        """Whether nothing is scheduled."""
        return (await self.status()).pause_mode is not None

    async def sleep(self, level: int = 1, *, mode: PauseMode = PauseMode.ABORT) -> EngineStatus:
        """Pause, then give memory back."""
        status: EngineStatus = await self.run_command(Sleep(level=level, mode=mode))
        return status

    async def wake_up(self, tags: Sequence[WakeTag] | None = None) -> EngineStatus:
        """Bring memory back: what `tags` name, or all of it."""
        arguments = WakeUp(tags=None if tags is None else tuple(map(WakeTag, tags)))
        status: EngineStatus = await self.run_command(arguments)
        return status

    async def is_sleeping(self) -> bool:
        """Whether some memory is given back, or scheduling sleeps."""
        return (await self.status()).state in (EngineState.SLEEPING, EngineState.WAKING)

    async def reset_prefix_cache(self, *, preempt_running: bool = False) -> bool:
        """Forget all cached blocks; False, and nothing happens, while requests use blocks."""
        return bool(await self.run_command(ResetPrefixCache(preempt_running=preempt_running)))

    async def update_weights(
        self,
        path: str | None = None,
        *,
        tensors: Mapping[str, Any] | None = None,
        version: str = "",
    ) -> EngineStatus:
        """Replace weights in place, from safetensors files or from arrays or tensors."""
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
