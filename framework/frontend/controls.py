"""`Controls`: the control commands as methods. Front-end process, one thread."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, cast

from framework.frontend.named_commands import plain_result, typed_arguments
from hookspecs.types.commands import (
    CollectiveRpc,
    CommandArguments,
    GetStatus,
    Pause,
    ResetPrefixCache,
    Resume,
    Sleep,
    StartProfile,
    StopProfile,
    UpdateWeights,
    WakeUp,
)
from hookspecs.types.control import EngineStatus, PauseMode, WakeTag

__all__ = ["Controls"]


class Controls(ABC):
    """What each command does in which state is in `docs/control.md`; modes and tags may be given
    as text. All raise CommandError when the engine's state does not allow it, InvalidRequestError
    for a wrong argument, UnsupportedFeatureError for what the worker does not declare,
    EngineDeadError once the engine has stopped."""

    @abstractmethod
    def run_command(self, arguments: CommandArguments) -> Any:
        """Run a control command and wait for its answer; raises its failure."""

    def command(self, name: str, arguments: Mapping[str, Any]) -> Any:
        """Run a command by its name, also one that a plugin provides (`EngineCommand`); the result
        in plain values. The rules are those of `EngineClient.command`."""
        return plain_result(name, self.run_command(typed_arguments(name, arguments)))

    def status(self) -> EngineStatus:
        """The engine's state."""
        return cast(EngineStatus, self.run_command(GetStatus()))

    def pause(
        self, mode: PauseMode | str = PauseMode.ABORT, *, clear_cache: bool = True
    ) -> EngineStatus:
        """Stop scheduling; returns when nothing runs any more. Requests that are in the engine
        end (`abort`), run to their end if they have started (`wait`), or freeze (`keep`)."""
        arguments = Pause(mode=cast(PauseMode, mode), clear_cache=clear_cache)
        return cast(EngineStatus, self.run_command(arguments))

    def resume(self) -> EngineStatus:
        """Schedule again."""
        return cast(EngineStatus, self.run_command(Resume()))

    def sleep(self, level: int = 1, mode: PauseMode | str = PauseMode.ABORT) -> EngineStatus:
        """Pause, then give memory back: 0 none, 1 the KV cache (weights stay in host memory),
        2 both."""
        return cast(EngineStatus, self.run_command(Sleep(level=level, mode=cast(PauseMode, mode))))

    def wake_up(self, tags: Sequence[WakeTag | str] | None = None) -> EngineStatus:
        """Bring memory back (`weights`, `kv_cache`), and schedule again (`scheduling`); without
        tags all of it."""
        wanted = tags if tags is None or isinstance(tags, str) else tuple(tags)
        return cast(
            EngineStatus, self.run_command(WakeUp(tags=cast("tuple[WakeTag, ...] | None", wanted)))
        )

    def reset_prefix_cache(self, preempt_running: bool = False) -> bool:
        """Forget all cached blocks. False, and nothing happens, while requests use blocks, unless
        these are to be computed again."""
        return cast(bool, self.run_command(ResetPrefixCache(preempt_running=preempt_running)))

    def update_weights(
        self,
        path: str | None = None,
        tensors: Mapping[str, Any] | None = None,
        version: str = "",
    ) -> EngineStatus:
        """Replace weights in place, from safetensors files or from arrays by checkpoint name. The
        engine must be paused, or have no requests."""
        given = None if tensors is None else dict(tensors)
        return cast(
            EngineStatus, self.run_command(UpdateWeights(path=path, tensors=given, version=version))
        )

    def start_profile(self, directory: str) -> EngineStatus:
        """Record what the workers compute."""
        return cast(EngineStatus, self.run_command(StartProfile(directory=directory)))

    def stop_profile(self) -> list[str]:
        """Write what was recorded; the paths of the traces, one a worker."""
        return cast("list[str]", self.run_command(StopProfile()))

    def collective_rpc(
        self, command: str, args: Sequence[Any] = (), timeout_s: float | None = None
    ) -> list[Any]:
        """Run a command of the workers on all of them; results in the order of ranks."""
        arguments = CollectiveRpc(command=command, args=tuple(args), timeout_s=timeout_s)
        return cast("list[Any]", self.run_command(arguments))
