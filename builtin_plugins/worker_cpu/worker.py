"""The worker `cpu`: one process's processor cores."""

from __future__ import annotations

import importlib.util
from typing import ClassVar

import msgspec
import torch

from builtin_plugins.worker_cpu.batch import InputBatch
from builtin_plugins.worker_cpu.kv_buffers import allocate_buffers
from builtin_plugins.worker_cpu.memory import (
    cache_line,
    default_kv_bytes,
    kv_line,
    weights_line,
)
from builtin_plugins.worker_cpu.runner import CpuModelRunner
from hookspecs.config import Dtype
from hookspecs.contracts.attention import AttentionBackend, AttentionCapability
from hookspecs.contracts.logits import SamplerContext
from hookspecs.contracts.model import LoadedModel
from hookspecs.contracts.worker import Worker, WorkerCapability, WorkerContext
from hookspecs.errors import UnsupportedModelError
from hookspecs.types.kv import KVCacheConfig, KVLayerSpec
from hookspecs.types.step import GrammarOutput, ModelRunnerOutput, SchedulerOutput

__all__ = ["CpuWorker"]

_DEVICE = "cpu"
_AUTO_ATTENTION = "sdpa"
"""The faster one in `python -m benchmarks attention-backends`."""


class CpuWorker(Worker):
    """Everything runs in the caller's thread, and in torch's own compute threads."""

    capabilities: ClassVar[frozenset[WorkerCapability]] = frozenset(
        {
            WorkerCapability.PROMPT_EMBEDS,
            WorkerCapability.PROMPT_LOGPROBS,
            WorkerCapability.SLIDING_WINDOW,
        }
    )

    def __init__(self, context: WorkerContext) -> None:
        super().__init__(context)
        self._model: LoadedModel | None = None
        self._backend: AttentionBackend | None = None
        self._runner: CpuModelRunner | None = None

    @classmethod
    def rate(cls) -> int:
        return 10 if importlib.util.find_spec("torch") is not None else 0

    @property
    def device(self) -> str:
        return _DEVICE

    def init_device(self) -> None:
        threads = self.context.config.executor.threads
        if threads is not None:
            torch.set_num_threads(threads)

    def load_model(self) -> None:
        """UnsupportedModelError also when the attention backend lacks what the model needs."""
        config = self.context.config
        # float32 whatever the checkpoint's type: not all processors compute in the shorter ones.
        dtype = Dtype.FLOAT32 if config.model.dtype is Dtype.AUTO else config.model.dtype
        loader = self.context.create_loader()
        self._model = loader.load(self.context.model, dtype=dtype.value, device=_DEVICE)
        name = config.executor.attention
        name = _AUTO_ATTENTION if name == "auto" else name
        self._backend = self.context.create_attention(name, _DEVICE)
        # Capabilities for types are named as the types.
        needs = self._model.attention_features | (
            {config.cache.kv_dtype.value} & set(AttentionCapability)
        )
        missing = sorted(needs - self._backend.capabilities)
        if missing:
            raise UnsupportedModelError(
                f"model {self.context.model.name!r} with cache.kv_dtype "
                f"{config.cache.kv_dtype.value!r} needs {', '.join(missing)}, which the "
                f"attention backend {name!r} does not have. Choose another one "
                "(executor.attention)."
            )
        self.context.report(weights_line(self._model.weight_bytes, dtype.value))

    def kv_layer_specs(self) -> list[KVLayerSpec]:
        assert self._model is not None
        kv_dtype = self.context.config.cache.kv_dtype
        if kv_dtype is Dtype.AUTO:
            return self._model.layer_specs
        itemsize = getattr(torch, kv_dtype.value).itemsize
        return [
            msgspec.structs.replace(spec, dtype=kv_dtype.value, itemsize=itemsize)
            for spec in self._model.layer_specs
        ]

    def available_kv_bytes(self) -> int:
        configured = self.context.config.cache.kv_bytes
        kv_bytes = default_kv_bytes() if configured is None else configured
        self.context.report(kv_line(kv_bytes, configured is not None))
        return kv_bytes

    def initialize_kv_cache(self, kv_config: KVCacheConfig) -> None:
        """There is nothing to warm up: torch compiles no kernels for the processor."""
        assert self._model is not None and self._backend is not None
        config, info = self.context.config, self.context.model.info
        max_num_seqs = config.scheduler.max_num_seqs
        sampler = self.context.create_sampler(
            SamplerContext(
                config=config,
                vocab_size=info.vocab_size,
                max_num_seqs=max_num_seqs,
                device=_DEVICE,
            )
        )
        self._runner = CpuModelRunner(
            model=self._model,
            info=info,
            backend=self._backend,
            sampler=sampler,
            caches=allocate_buffers(kv_config, self.kv_layer_specs(), self._backend),
            batch=InputBatch(kv_config, max_num_seqs, self.context.max_model_len),
        )
        self.context.report(cache_line(kv_config))

    def execute_model(self, scheduled: SchedulerOutput) -> None:
        assert self._runner is not None
        self._runner.execute_model(scheduled)

    def sample_tokens(self, grammar: GrammarOutput | None) -> ModelRunnerOutput:
        assert self._runner is not None
        return self._runner.sample_tokens(grammar)

    def shutdown(self) -> None:
        self._runner = self._backend = self._model = None
