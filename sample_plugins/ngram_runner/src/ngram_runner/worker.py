"""The worker: no device, no torch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from hookspecs.contracts.worker import Worker, WorkerContext
from hookspecs.errors import ConfigError, InternalError, UnsupportedModelError
from hookspecs.types.kv import KVCacheConfig, KVLayerSpec
from hookspecs.types.step import GrammarOutput, ModelRunnerOutput, SchedulerOutput

from ngram_runner.counts import NgramCounts
from ngram_runner.options import NgramOptions
from ngram_runner.runner import NgramRunner
from ngram_runner.source import ARCHITECTURE, TOKENS_FILE

__all__ = ["NgramWorker"]


class NgramWorker(Worker):
    """Counts the n-grams of the text behind the model. `rate` stays 0: it runs no other model,
    so it is never chosen for one."""

    def __init__(self, context: WorkerContext) -> None:
        super().__init__(context)
        if not isinstance(context.options, NgramOptions):
            raise ConfigError(f"the worker needs NgramOptions, not {context.options!r}")
        self._options = context.options
        self._counts: NgramCounts | None = None
        self._runner: NgramRunner | None = None

    @property
    def device(self) -> str:
        return "cpu"

    def init_device(self) -> None:
        """There is none."""

    def load_model(self) -> None:
        model = self.context.model
        if model.info.architecture != ARCHITECTURE or model.path is None:
            raise UnsupportedModelError(
                f"the worker 'ngram' runs models of text files (model.name = 'ngram:PATH'), but "
                f"{model.name!r} is {model.info.architecture}. Select another worker."
            )
        tokens = np.load(Path(model.path, TOKENS_FILE))
        self._counts = NgramCounts(tokens, self._options.order)
        self.context.report(
            f"n-grams of {len(tokens)} tokens: {self._counts.num_contexts} contexts of up to "
            f"{self._options.order - 1} tokens"
        )

    def kv_layer_specs(self) -> list[KVLayerSpec]:
        """Nothing is kept, but the kernel accounts for requests in blocks of a layer."""
        return [KVLayerSpec(layer=0, num_kv_heads=1, head_size=1, dtype="float32", itemsize=4)]

    def available_kv_bytes(self) -> int:
        """`cache.kv_bytes`, or as much as all requests together can fill."""
        config = self.context.config
        if config.cache.kv_bytes is not None:
            return config.cache.kv_bytes
        blocks = -(-self.context.max_model_len // config.cache.block_size)
        # One block more, which the kernel keeps.
        num_blocks = config.scheduler.max_num_seqs * blocks + 1
        [layer] = self.kv_layer_specs()
        return num_blocks * config.cache.block_size * layer.bytes_per_token

    def initialize_kv_cache(self, kv_config: KVCacheConfig) -> None:
        """There is none."""
        if self._counts is None:
            raise InternalError("initialize_kv_cache was called without load_model before it")
        self._runner = NgramRunner(self._counts, self.context.config.model.seed)

    def execute_model(self, scheduled: SchedulerOutput) -> None:
        self._ready().execute_model(scheduled)

    def sample_tokens(self, grammar: GrammarOutput | None) -> ModelRunnerOutput:
        return self._ready().sample_tokens(grammar)

    def shutdown(self) -> None:
        self._counts = self._runner = None

    def _ready(self) -> NgramRunner:
        if self._runner is None:
            raise InternalError("the worker 'ngram' was called outside of its life")
        return self._runner
