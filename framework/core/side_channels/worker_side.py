"""A worker with the worker halves of side channels around its steps."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from framework.core.side_channels.halves import Halves
from framework.core.side_channels.start import create_worker_halves
from framework.plugins.manager import PluginManager
from hookspecs.contracts.side_channel import WorkerHalf
from hookspecs.contracts.worker import Worker
from hookspecs.events import PluginFailed
from hookspecs.types.kv import KVCacheConfig, KVLayerSpec
from hookspecs.types.step import GrammarOutput, ModelRunnerOutput, SchedulerOutput

__all__ = ["with_side_channels"]


def with_side_channels(
    worker: Worker,
    plugins: PluginManager,
    engine_index: int,
    tell: Callable[[PluginFailed], object],
) -> Worker:
    """The worker itself if no side channel is selected. For whoever constructs the selected
    worker, before anything is called on it. `tell`: takes failures of halves, in the worker's
    thread. What `create_worker_halves` raises; the worker is shut down then."""
    if not plugins.config.engine.side_channels:
        return worker
    try:
        halves = create_worker_halves(plugins, engine_index, worker.context.rank, tell)
    except BaseException:
        worker.shutdown()
        raise
    return _SideChannelWorker(worker, halves)


class _SideChannelWorker(Worker):
    """Everything is the worker's own, but that halves hear of its steps. Worker process, the
    worker's thread."""

    def __init__(self, worker: Worker, halves: Halves[WorkerHalf]) -> None:
        super().__init__(worker.context)
        # Like the kernel where a provider declares them: those of this worker, not of a class.
        object.__setattr__(self, "capabilities", worker.capabilities)
        self._worker = worker
        self._halves = halves
        self._launched: deque[SchedulerOutput] = deque()
        """Steps whose forward was launched and that were not sampled, the oldest first."""

    def execute_model(self, scheduled: SchedulerOutput) -> None:
        self._halves.deliver(
            "on_step",
            scheduled.side_channel,
            lambda half, message: half.on_step(scheduled, message),
            to_all=True,
        )
        self._worker.execute_model(scheduled)
        self._launched.append(scheduled)  # one that raised is never sampled

    def sample_tokens(self, grammar: GrammarOutput | None) -> ModelRunnerOutput:
        scheduled = self._launched.popleft() if self._launched else None
        output = self._worker.sample_tokens(grammar)
        if scheduled is None or not _well_formed(output):
            return output  # the worker or the kernel says what is wrong
        replies = self._halves.collect("reply", lambda half: half.reply(scheduled, output))
        if replies or output.side_channel:
            # What the worker itself has put there stays, for the core to complain of, but can not
            # pass for the reply of a half.
            names = self._halves.names
            own = {k: v for k, v in output.side_channel.items() if k not in names}
            output.side_channel = own | replies
        return output

    def shutdown(self) -> None:
        try:
            self._halves.close()
        finally:
            self._worker.shutdown()

    # Plain delegation

    def __getattr__(self, name: str) -> Any:
        """What an executor knows of its own worker beyond the contract."""
        return getattr(self._worker, name)

    def init_device(self) -> None:
        self._worker.init_device()

    def load_model(self) -> None:
        self._worker.load_model()

    def kv_layer_specs(self) -> list[KVLayerSpec]:
        return self._worker.kv_layer_specs()

    def available_kv_bytes(self) -> int:
        return self._worker.available_kv_bytes()

    def initialize_kv_cache(self, kv_config: KVCacheConfig) -> None:
        self._worker.initialize_kv_cache(kv_config)

    @property
    def device(self) -> str:
        return self._worker.device

    def commands(self) -> dict[str, Callable[..., Any]]:
        return self._worker.commands()

    def sleep(self, level: int) -> None:
        self._worker.sleep(level)

    def wake_up(self, tags: Sequence[str]) -> None:
        self._worker.wake_up(tags)

    def update_weights(self, path: str | None, tensors: Mapping[str, Any] | None) -> int:
        return self._worker.update_weights(path, tensors)

    def list_adapters(self) -> list[str]:
        return self._worker.list_adapters()

    def load_adapter(self, name: str, path: str) -> None:
        self._worker.load_adapter(name, path)

    def unload_adapter(self, name: str) -> None:
        self._worker.unload_adapter(name)

    def start_profile(self, directory: str) -> None:
        self._worker.start_profile(directory)

    def stop_profile(self) -> str:
        return self._worker.stop_profile()


def _well_formed(output: object) -> bool:
    return isinstance(output, ModelRunnerOutput) and isinstance(output.side_channel, dict)
