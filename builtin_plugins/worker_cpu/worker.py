"""The worker `cpu`: one process's processor cores."""

from __future__ import annotations

import contextlib
import importlib.util
import logging
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import msgspec
import torch

from builtin_plugins.worker_cpu.batch import InputBatch
from builtin_plugins.worker_cpu.kv_buffers import allocate_buffers
from builtin_plugins.worker_cpu.memory import (
    cache_line,
    default_kv_bytes,
    give_back,
    kv_line,
    too_much_line,
    weights_line,
)
from builtin_plugins.worker_cpu.profile import TraceRecorder
from builtin_plugins.worker_cpu.runner import CpuModelRunner
from builtin_plugins.worker_cpu.threads import free_compute_threads, set_compute_threads
from builtin_plugins.worker_cpu.weights import given_tensors
from framework.sdk import native
from framework.sdk.logits_processors import LogitsProcessors
from framework.sdk.sleep import SleepState
from hookspecs.config import Dtype
from hookspecs.contracts.attention import AttentionBackend, AttentionCapability
from hookspecs.contracts.logits import SamplerContext
from hookspecs.contracts.model import LoadedModel
from hookspecs.contracts.worker import Worker, WorkerCapability, WorkerContext, command
from hookspecs.errors import (
    CommandError,
    ConfigError,
    ProviderNotFoundError,
    UnsupportedModelError,
)
from hookspecs.types.control import WakeTag
from hookspecs.types.kv import KVCacheConfig, KVLayerSpec
from hookspecs.types.step import GrammarOutput, ModelRunnerOutput, SchedulerOutput

__all__ = ["CpuWorker"]

logger = logging.getLogger("framework.worker")

_DEVICE = "cpu"
_PREFILL_BESIDE_DECODE = 32
"""Reading the weights hides the arithmetic of some 16 tokens; from there on a step's time is in
proportion to its tokens, and smaller chunks of a prompt cost nothing."""


class CpuWorker(Worker):
    """Everything runs in the caller's thread, and in the compute threads of torch and kernels."""

    capabilities: ClassVar[frozenset[WorkerCapability]] = frozenset(
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
    )

    def __init__(self, context: WorkerContext) -> None:
        super().__init__(context)
        self._model: LoadedModel | None = None
        self._backend: AttentionBackend | None = None
        self._runner: CpuModelRunner | None = None
        self._kv_config: KVCacheConfig | None = None
        self._specs: list[KVLayerSpec] = []
        """Of the model, also while it is not there."""
        self._sleep = SleepState()
        self._recorder = TraceRecorder(context.rank)
        self._threads = 1
        self._loader_name = ""

    @classmethod
    def rate(cls) -> int:
        return 10 if importlib.util.find_spec("torch") is not None else 0

    @property
    def device(self) -> str:
        return _DEVICE

    @property
    def prefill_beside_decode(self) -> int:
        return _PREFILL_BESIDE_DECODE

    def init_device(self) -> None:
        self._threads = set_compute_threads(self.context.config.executor.threads, self)

    def load_model(self) -> None:
        """UnsupportedModelError also when the attention backend lacks what the model needs."""
        config = self.context.config
        self._model = self._read_model()
        lacking = native.available()
        name, self._backend = self._make_attention(lacking is None)
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
        kernels = "native" if lacking is None else f"of torch only ({lacking.splitlines()[0]})"
        self.context.report(
            f"compute: {self._threads} thread{'s' * (self._threads > 1)}, kernels {kernels}, "
            f"attention {name}, loader {self._loader_name}"
        )
        if lacking is not None:
            logger.warning(
                "the CPU kernels can not be used, so steps take about four times as long: %s",
                lacking,
            )
        self.context.report(
            weights_line(self._model.weight_bytes, config.model.quantization or self._dtype.value)
        )

    def kv_layer_specs(self) -> list[KVLayerSpec]:
        assert self._model is not None
        return self._layer_specs(self._model)

    def available_kv_bytes(self) -> int:
        configured = self.context.config.cache.kv_bytes
        kv_bytes = default_kv_bytes() if configured is None else configured
        self.context.report(kv_line(kv_bytes, configured is not None))
        warning = too_much_line(kv_bytes)
        if warning is not None:
            logger.warning(warning)
        return kv_bytes

    def initialize_kv_cache(self, kv_config: KVCacheConfig) -> None:
        """There is nothing to warm up: torch compiles no kernels for the processor."""
        assert self._model is not None and self._backend is not None
        self._kv_config, self._specs = kv_config, self.kv_layer_specs()
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
        try:
            batch = InputBatch(kv_config, max_num_seqs, self.context.max_model_len)
        except MemoryError as error:
            raise ConfigError(
                f"the batch of {max_num_seqs} requests (scheduler.max_num_seqs) of up to "
                f"{self.context.max_model_len} tokens (model.max_model_len) does not fit into "
                f"memory: {error}. Lower one of them."
            ) from error
        self._runner = CpuModelRunner(
            model=self._model,
            info=info,
            backend=self._backend,
            sampler=sampler,
            processors=LogitsProcessors(self.context.create_logits_processors, info.vocab_size),
            caches=allocate_buffers(kv_config, self._specs, self._backend),
            batch=batch,
        )
        self.context.report(cache_line(kv_config))

    def execute_model(self, scheduled: SchedulerOutput) -> None:
        assert self._runner is not None
        self._sleep.check_step()
        self._runner.execute_model(scheduled)

    def sample_tokens(self, grammar: GrammarOutput | None) -> ModelRunnerOutput:
        assert self._runner is not None
        return self._runner.sample_tokens(grammar)

    @command
    def sleep(self, level: int) -> None:
        """Weights lie in host memory in any case, so level 1 leaves them where they are."""
        assert self._runner is not None
        added = self._sleep.fall_asleep(level)
        if WakeTag.KV_CACHE in added:
            self._runner.bind_caches({})
        if WakeTag.WEIGHTS in added:
            self._runner.drop_model()
            self._model = None
        if added:
            give_back()

    @command
    def wake_up(self, tags: Sequence[str]) -> None:
        """What the model loader raises when the files are no longer as they were; the weights
        sleep on then."""
        for tag in self._sleep.to_wake(tags):
            if tag is WakeTag.WEIGHTS:
                self._wake_weights()
            else:
                self._wake_kv_cache()
            self._sleep.woke(tag)

    @command
    def update_weights(self, path: str | None, tensors: Mapping[str, Any] | None) -> int:
        self._sleep.check_weights()
        assert self._model is not None
        return self._model.update_weights(given_tensors(path, tensors))

    @command
    def start_profile(self, directory: str) -> None:
        self._recorder.start(directory)

    @command
    def stop_profile(self) -> str:
        return self._recorder.stop()

    def shutdown(self) -> None:
        self._recorder.abandon()
        self._runner = self._backend = self._model = None
        free_compute_threads(self)

    @property
    def _dtype(self) -> Dtype:
        # float32 whatever the checkpoint's type: not all processors compute in the shorter ones.
        dtype = self.context.config.model.dtype
        return Dtype.FLOAT32 if dtype is Dtype.AUTO else dtype

    def _read_model(self) -> LoadedModel:
        dtype = self._dtype.value
        loader = self.context.create_loader(dtype=dtype, device=_DEVICE)
        self._loader_name = loader.context.name
        return loader.load(self.context.model, dtype=dtype, device=_DEVICE)

    def _make_attention(self, kernels: bool) -> tuple[str, AttentionBackend]:
        """The configured backend; with `auto` the faster one, where its kernels can be compiled
        and its plugin is not blocked."""
        name = self.context.config.executor.attention
        if name == "auto" and kernels:
            with contextlib.suppress(ProviderNotFoundError):
                return "cpu_paged", self.context.create_attention("cpu_paged", _DEVICE)
        if name == "auto":
            name = "sdpa"
        return name, self.context.create_attention(name, _DEVICE)

    def _wake_weights(self) -> None:
        assert self._runner is not None
        model = self._read_model()
        if self._layer_specs(model) != self._specs:
            raise CommandError(
                f"the files of model {self.context.model.name!r} are of another model now: the "
                "weights can not wake up. Put the model's files back."
            )
        self._model = model
        self._runner.bind_model(model)

    def _wake_kv_cache(self) -> None:
        assert self._runner is not None
        assert self._backend is not None and self._kv_config is not None
        self._runner.bind_caches(allocate_buffers(self._kv_config, self._specs, self._backend))

    def _layer_specs(self, model: LoadedModel) -> list[KVLayerSpec]:
        kv_dtype = self.context.config.cache.kv_dtype
        if kv_dtype is Dtype.AUTO:
            return model.layer_specs
        itemsize = getattr(torch, kv_dtype.value).itemsize
        return [
            msgspec.structs.replace(spec, dtype=kv_dtype.value, itemsize=itemsize)
            for spec in model.layer_specs
        ]
