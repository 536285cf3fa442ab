"""The worker `scripted`: no device, no model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from builtin_plugins.worker_scripted.batch import ScriptedBatch
from builtin_plugins.worker_scripted.options import CAPABILITIES, ScriptedOptions, fitted
from builtin_plugins.worker_scripted.runner import ScriptedRunner
from builtin_plugins.worker_scripted.settings import check_settings
from builtin_plugins.worker_scripted.verify import StepVerifier
from builtin_plugins.worker_scripted.weights import INITIAL_OFFSET, given_offset
from framework.sdk.logits_processors import LogitsProcessors
from framework.sdk.sleep import SleepState
from hookspecs.contracts.logits import Sampler, SamplerContext
from hookspecs.contracts.worker import Worker, WorkerCapability, WorkerContext, command
from hookspecs.types.control import WakeTag
from hookspecs.types.kv import KVCacheConfig, KVLayerSpec
from hookspecs.types.step import GrammarOutput, ModelRunnerOutput, SchedulerOutput

__all__ = ["ScriptedWorker"]

_DEFAULT_KV_BYTES = 64 * 1024 * 1024


class ScriptedWorker(Worker):
    """For tests: what a request outputs is in its `extensions["scripted"]` (see `script`), or a
    function of all its tokens (see `rule`), and every step is checked (see `verify`).

    A request that is plain greedy gets its token directly; any other, and one with logits
    processors, goes through these and the configured sampler, with logit 20 for its token and 0
    for the rest, or with scripted logits. It runs any model, of which it takes the end token, and
    the size of the vocabulary where that is below its option.
    A pooling request gets the vector that `pooling` says.
    """

    capabilities: ClassVar[frozenset[WorkerCapability]] = CAPABILITIES

    def __init__(self, context: WorkerContext) -> None:
        super().__init__(context)
        assert isinstance(context.options, ScriptedOptions)
        self._options = fitted(context.options, context.model.info)
        self._runner: ScriptedRunner | None = None
        self._sleep = SleepState()
        self.verifier: StepVerifier | None = None
        """The KV cache, for tests that look into it; None before it is there, or without
        verification."""

    @property
    def device(self) -> str:
        return "cpu"

    def init_device(self) -> None:
        """There is none."""

    def load_model(self) -> None:
        """There is none, and settings for one are told. UnsupportedFeatureError for
        `model.quantization`."""
        check_settings(self.context.config, self.context.report)

    def kv_layer_specs(self) -> list[KVLayerSpec]:
        """512 bytes a token and layer."""
        return [
            KVLayerSpec(
                layer=layer,
                num_kv_heads=1,
                head_size=64,
                dtype="float32",
                itemsize=4,
                sliding_window=self._window(layer),
            )
            for layer in range(self._options.num_layers)
        ]

    def available_kv_bytes(self) -> int:
        """`cache.kv_bytes`, or 64 MiB, none of which is really used."""
        configured = self.context.config.cache.kv_bytes
        return _DEFAULT_KV_BYTES if configured is None else configured

    def initialize_kv_cache(self, kv_config: KVCacheConfig) -> None:
        max_num_seqs = self.context.config.scheduler.max_num_seqs
        batch = ScriptedBatch(
            max_num_seqs, self.context.max_model_len, verified=self._options.verify
        )
        self.verifier = StepVerifier(kv_config, batch) if self._options.verify else None
        processors = LogitsProcessors(
            self.context.create_logits_processors, self._options.vocab_size
        )
        self._runner = ScriptedRunner(
            self._options, batch, self.verifier, self._create_sampler, processors
        )

    def execute_model(self, scheduled: SchedulerOutput) -> None:
        assert self._runner is not None
        self._sleep.check_step()
        self._runner.execute_model(scheduled)

    def sample_tokens(self, grammar: GrammarOutput | None) -> ModelRunnerOutput:
        assert self._runner is not None
        return self._runner.sample_tokens(grammar)

    @command
    def sleep(self, level: int) -> None:
        """Bookkeeping, but what is in the verified cache is lost."""
        if WakeTag.KV_CACHE in self._sleep.fall_asleep(level) and self.verifier is not None:
            self.verifier.clear()

    @command
    def wake_up(self, tags: Sequence[str]) -> None:
        """The weights come back as they were loaded."""
        assert self._runner is not None
        for tag in self._sleep.to_wake(tags):
            if tag is WakeTag.WEIGHTS:
                self._runner.set_offset(INITIAL_OFFSET)
            self._sleep.woke(tag)

    @command
    def update_weights(self, path: str | None, tensors: Mapping[str, Any] | None) -> int:
        """See `weights`."""
        self._sleep.check_weights()
        assert self._runner is not None
        self._runner.set_offset(given_offset(path, tensors))
        return 1

    def shutdown(self) -> None:
        self._runner = None
        self.verifier = None

    def _window(self, layer: int) -> int | None:
        full = self._options.num_groups == 2 and layer % 2 == 0
        return None if full else self._options.sliding_window

    def _create_sampler(self) -> Sampler:
        return self.context.create_sampler(
            SamplerContext(
                config=self.context.config,
                vocab_size=self._options.vocab_size,
                max_num_seqs=self.context.config.scheduler.max_num_seqs,
                device=self.device,
            )
        )
