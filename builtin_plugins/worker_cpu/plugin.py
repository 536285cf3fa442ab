"""The plugin `worker-cpu`: runs models on the processor."""

from __future__ import annotations

from collections.abc import Iterable

from hookspecs import EngineHooks, PluginInfo, Provider, hookimpl
from hookspecs.contracts.worker import Worker, WorkerCapability

__all__ = ["CpuWorkerPlugin", "plugin"]


class CpuWorkerPlugin(EngineHooks):
    """Offers the worker `cpu`."""

    PLUGIN = PluginInfo(
        name="worker-cpu",
        api=">=1.0,<2",
        description="Runs models on the processor, with torch.",
    )

    @hookimpl
    def register_workers(self) -> Iterable[Provider[Worker]]:
        yield Provider(
            "cpu",
            "builtin_plugins.worker_cpu.worker:CpuWorker",
            capabilities=frozenset(
                {
                    WorkerCapability.LOGITS_PROCESSORS,
                    WorkerCapability.POOLING,
                    WorkerCapability.PROFILE,
                    WorkerCapability.PROMPT_EMBEDS,
                    WorkerCapability.PROMPT_LOGPROBS,
                    WorkerCapability.SLEEP,
                    WorkerCapability.SLIDING_WINDOW,
                    WorkerCapability.UPDATE_WEIGHTS,
                }
            ),
            description="One process on the processor; float32 unless told otherwise.",
        )


plugin = CpuWorkerPlugin()
