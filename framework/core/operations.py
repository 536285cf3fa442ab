"""What control commands do to an engine core. Core process, main thread, between two steps."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from framework.core.control import MEMORY, Call, ControlPlane
from framework.core.transitions import Transition
from hookspecs.contracts.worker import WorkerCapability
from hookspecs.errors import (
    CommandError,
    InvalidRequestError,
    UnsupportedFeatureError,
)
from hookspecs.types.commands import (
    CollectiveRpc,
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
from hookspecs.types.control import EngineState, EngineStatus, PauseMode, WakeTag

__all__ = ["LATER", "Kernel", "Operations"]

LATER: Final = object()
"""The answer of a command that waits among the pending ones."""
_OWNED = ("sleep", "wake_up", "update_weights")
"""Commands of workers that only the kernel may give: it must know what they change."""


class Kernel(Protocol):
    """What operations need of the engine core. An exception of what it calls stops the engine,
    but for `call_workers`."""

    @property
    def capabilities(self) -> frozenset[str]:
        """WorkerCapability values of the worker."""

    def now(self) -> float:
        """Seconds."""

    def status(self) -> EngineStatus:
        """The engine's state."""

    def has_requests(self) -> bool:
        """Whether a request is in the engine."""

    def has_started(self) -> bool:
        """Whether a request that has started has not ended."""

    def abort_all(self) -> None:
        """End every request in the engine with `abort`."""

    def preempt_all(self) -> None:
        """Take slot and blocks from all running requests."""

    def forget_cache(self) -> bool:
        """Forget cached blocks. False, with nothing changed, while blocks are in use."""

    def clear_cache(self) -> None:
        """`preempt_all`, then `forget_cache`, which now must succeed."""

    def call_workers(
        self, command: str, args: Sequence[Any] = (), *, timeout: float | None = None
    ) -> list[Any]:
        """Run a command on every worker. Raises what they raise."""

    def must_call_workers(self, command: str, args: Sequence[Any]) -> None:
        """The same for one after whose failure nothing is known of the workers' memory."""

    def run_plugin_command(self, name: str, arguments: Mapping[str, Any]) -> Any:
        """The answer of a plugin's command in plain values. InvalidRequestError, CommandError."""

    def replace_weights(self, path: str | None, tensors: Mapping[str, Any] | None) -> None:
        """`update_weights` on every worker. InvalidRequestError or CommandError when nothing was
        replaced; anything else stops the engine, too."""


class Operations:
    """One method a command: (call, checked arguments, table entry) to the answer, or LATER. The
    table has allowed it."""

    def __init__(self, plane: ControlPlane, kernel: Kernel) -> None:
        self.plane = plane
        self._kernel = kernel

    def status(self) -> EngineStatus:
        """The engine's state."""
        return self._kernel.status()

    # Pause and resume

    def get_status(self, call: Call, arguments: GetStatus, rule: Transition) -> EngineStatus:
        return self._kernel.status()

    def pause(self, call: Call, arguments: Pause, rule: Transition) -> object:
        if not self._hold(call, arguments.mode):
            return LATER
        if arguments.clear_cache:
            self._clear_cache()
        return self._kernel.status()

    def resume(self, call: Call, arguments: Resume, rule: Transition) -> EngineStatus:
        asleep = self.plane.memory_asleep
        if asleep:  # it was drained while it slept
            raise CommandError(rule.refusal.format(asleep=" and ".join(asleep)))
        self.plane.supersede("resume")
        self.plane.enter(rule.next)
        return self._kernel.status()

    def _hold(self, call: Call, mode: PauseMode) -> bool:
        """Pause, or wait for it among the pending commands; whether nothing runs now."""
        plane, kernel = self.plane, self._kernel
        if mode is PauseMode.ABORT and plane.pause_mode is not PauseMode.ABORT:
            plane.pause_mode = mode
            kernel.abort_all()
        if not plane.schedulable:
            return True
        plane.pause_mode = mode
        if mode is PauseMode.WAIT and kernel.has_started():
            plane.enter(EngineState.PAUSING)
            plane.pending.append(call)
            return False
        self._paused()
        return True

    def _paused(self) -> None:
        """Nothing runs any more: do what the pending commands wait for, and answer them."""
        self.plane.enter(EngineState.PAUSED)
        while self.plane.pending:
            call = self.plane.pending.popleft()
            self._complete(call, self._after_pause)

    def _after_pause(self, call: Call) -> EngineStatus:
        if isinstance(call.arguments, Sleep):
            self._fall_asleep(call.arguments.level)
        elif isinstance(call.arguments, Pause) and call.arguments.clear_cache:
            self._clear_cache()
        return self._kernel.status()

    def _complete(self, call: Call, finish: Callable[[Call], object]) -> None:
        try:
            answer = finish(call)
        except BaseException as error:
            call.fail(error)
            raise
        call.future.set_result(answer)

    def _clear_cache(self) -> None:
        if WakeTag.KV_CACHE in self.plane.asleep:
            return
        self._kernel.clear_cache()

    # Sleep

    def sleep(self, call: Call, arguments: Sleep, rule: Transition) -> object:
        if arguments.level > 0:
            self._require(WorkerCapability.SLEEP, f"level {arguments.level}")
        if not self._hold(call, arguments.mode):
            return LATER
        self._fall_asleep(arguments.level)
        return self._kernel.status()

    def _fall_asleep(self, level: int) -> None:
        """Never less deep than it sleeps already."""
        plane = self.plane
        memory, before = plane.memory_asleep, plane.sleep_level or 0
        if level > 0 and (level > before or len(memory) < len(MEMORY)):
            self._clear_cache()
            if WakeTag.WEIGHTS in memory:
                level = max(level, before)
            self._kernel.must_call_workers("sleep", (level,))
            memory = MEMORY
        elif memory:
            level = before
        plane.asleep = (*memory, WakeTag.SCHEDULING)
        plane.sleep_level = level
        plane.enter(EngineState.SLEEPING)

    def wake_up(self, call: Call, arguments: WakeUp, rule: Transition) -> EngineStatus:
        plane = self.plane
        tags = tuple(WakeTag) if arguments.tags is None else arguments.tags
        if not tags:
            raise InvalidRequestError(
                f"tags is empty; name what to bring back ({', '.join(WakeTag)}), or give none for "
                "all",
                param="tags",
                value=(),
            )
        named = [tag for tag in plane.memory_asleep if tag in tags]
        left = tuple(tag for tag in plane.memory_asleep if tag not in tags)
        schedule = WakeTag.SCHEDULING in tags
        if schedule and left:
            raise CommandError(rule.refusal.format(asleep=" and ".join(left)))
        plane.supersede("wake_up")
        plane.enter(rule.next)
        if named:
            self._kernel.must_call_workers("wake_up", ([str(tag) for tag in named],))
            plane.asleep = (*left, WakeTag.SCHEDULING)
        if not left:
            plane.enter(rule.then)
        return self._kernel.status()

    # Cache and weights

    def reset_prefix_cache(self, call: Call, arguments: ResetPrefixCache, rule: Transition) -> bool:
        if WakeTag.KV_CACHE in self.plane.asleep:
            return True
        if arguments.preempt_running:
            self._kernel.preempt_all()
        return self._kernel.forget_cache()

    def update_weights(
        self, call: Call, arguments: UpdateWeights, rule: Transition
    ) -> EngineStatus:
        plane, kernel = self.plane, self._kernel
        if (arguments.path is None) == (arguments.tensors is None):
            raise InvalidRequestError(
                "update_weights takes exactly one of path and tensors", param="path"
            )
        self._require(WorkerCapability.UPDATE_WEIGHTS)
        ready = {
            EngineState.RUNNING: not kernel.has_requests(),
            EngineState.WAKING: WakeTag.WEIGHTS not in plane.asleep,
        }
        if not ready.get(rule.state, True):
            raise CommandError(rule.refusal)
        plane.enter(rule.next)
        try:
            kernel.replace_weights(arguments.path, arguments.tensors)
        finally:
            if plane.alive:
                plane.enter(rule.then)
        self._clear_cache()
        plane.weights_version = arguments.version
        return kernel.status()

    # Drain

    def drain(self, call: Call, arguments: Drain, rule: Transition) -> object:
        plane, timeout = self.plane, arguments.timeout_s
        if rule.state is EngineState.PAUSING:
            plane.supersede("drain")
        aborts = not plane.schedulable
        plane.enter(rule.next)
        if timeout is not None and math.isfinite(timeout):
            plane.shorten_drain(self._kernel.now() + timeout)
        plane.pending.append(call)
        if aborts:
            self._kernel.abort_all()
        self.settle()
        return LATER

    def settle(self) -> None:
        """Answer the pending commands for which it is time."""
        plane, kernel = self.plane, self._kernel
        if plane.state is EngineState.PAUSING:
            if not kernel.has_started():
                self._paused()
        elif plane.state is EngineState.DRAINING and plane.pending:
            deadline = plane.drain_deadline
            if deadline is not None and kernel.now() >= deadline:
                kernel.abort_all()
            while plane.pending and not kernel.has_requests():
                self._complete(plane.pending.popleft(), lambda call: kernel.status())

    # Workers

    def start_profile(self, call: Call, arguments: StartProfile, rule: Transition) -> EngineStatus:
        self._require_awake()
        self._require(WorkerCapability.PROFILE)
        self._kernel.call_workers("start_profile", (arguments.directory,))
        return self._kernel.status()

    def stop_profile(self, call: Call, arguments: StopProfile, rule: Transition) -> list[Any]:
        self._require_awake()
        self._require(WorkerCapability.PROFILE)
        return self._kernel.call_workers("stop_profile")

    def collective_rpc(self, call: Call, arguments: CollectiveRpc, rule: Transition) -> list[Any]:
        return self.call_workers(arguments.command, arguments.args, timeout=arguments.timeout_s)

    def call_workers(
        self, name: str, args: Sequence[Any] = (), *, timeout: float | None = None
    ) -> list[Any]:
        """Run a command that workers register, for somebody who is not the kernel. CommandError
        for one that is unknown or the kernel's own, and while the workers' memory sleeps."""
        self._require_awake()
        if name in _OWNED:
            raise CommandError(
                f"the engine must know of {name!r}; use the command {name} of the engine itself"
            )
        try:
            return self._kernel.call_workers(name, args, timeout=timeout)
        except KeyError as error:
            if getattr(error, "__notes__", None):
                raise  # the worker's own
            raise CommandError(str(error.args[0])) from error

    def plugin_command(self, call: Call, arguments: PluginCommand, rule: Transition) -> Any:
        return self._kernel.run_plugin_command(arguments.command, arguments.arguments)

    def list_adapters(self, call: Call, arguments: ListAdapters, rule: Transition) -> list[str]:
        self._require_awake()
        self._require(WorkerCapability.ADAPTERS)
        names: list[str] = self._kernel.call_workers("list_adapters")[0]
        return names

    def load_adapter(self, call: Call, arguments: LoadAdapter, rule: Transition) -> EngineStatus:
        self._require_awake()
        self._require(WorkerCapability.ADAPTERS)
        self._kernel.call_workers("load_adapter", (arguments.name, arguments.path))
        return self._kernel.status()

    def unload_adapter(
        self, call: Call, arguments: UnloadAdapter, rule: Transition
    ) -> EngineStatus:
        self._require_awake()
        self._require(WorkerCapability.ADAPTERS)
        self._kernel.call_workers("unload_adapter", (arguments.name,))
        return self._kernel.status()

    def _require_awake(self) -> None:
        """Workers whose memory is asleep do nothing; the table refuses it in the states of sleep,
        but one can be drained while it sleeps."""
        asleep = self.plane.memory_asleep
        if asleep:
            raise CommandError(f"{' and '.join(asleep)} of the workers sleeps; call wake_up first")

    def _require(self, capability: WorkerCapability, what: str = "") -> None:
        if capability not in self._kernel.capabilities:
            raise UnsupportedFeatureError(
                f"the worker does not declare the capability {capability}"
                f"{f', which {what} needs' if what else ''}; select one that does "
                "(executor.worker)"
            )
