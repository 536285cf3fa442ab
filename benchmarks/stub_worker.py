"""A worker that does nothing, to measure what is around it: tokens come from a table.

Its plugin is given to `launch` and `serve` as an object, and found in other processes by its name.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta

from hookspecs import EngineHooks, PluginInfo, Provider, hookimpl
from hookspecs.contracts.worker import Worker
from hookspecs.types.kv import KVCacheConfig, KVLayerSpec
from hookspecs.types.step import GrammarOutput, ModelRunnerOutput, SchedulerOutput

__all__ = ["PLUGINS", "StubOptions", "StubPlugin", "StubWorker", "plugin"]

_ROWS = 1 << 16
"""The most rows of a step."""


class StubOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`plugins.options.stub`."""

    step_s: Annotated[float, Meta(ge=0, description="Seconds from one forward to the next.")] = 0.0


class StubWorker(Worker):
    """Samples for every row that may; no parameter of a request is looked at."""

    def __init__(self, context: Any) -> None:
        super().__init__(context)
        assert isinstance(context.options, StubOptions)
        self._step_s = context.options.step_s
        self._next_at = 0.0
        usable = min(context.model.info.vocab_size, 40_000) - 500
        steps = np.arange(2 * _ROWS, dtype=np.int64) * 7919
        self._tokens = (500 + steps % usable).astype(np.int32)
        self._at = 0
        self._samples: Any = None

    @property
    def device(self) -> str:
        return "cpu"

    def init_device(self) -> None:
        """There is none."""

    def load_model(self) -> None:
        """There is none."""

    def kv_layer_specs(self) -> list[KVLayerSpec]:
        spec = KVLayerSpec(layer=0, num_kv_heads=1, head_size=64, dtype="float32", itemsize=4)
        return [spec]

    def available_kv_bytes(self) -> int:
        return 64 << 20

    def initialize_kv_cache(self, kv_config: KVCacheConfig) -> None:
        """Nothing is kept."""

    def execute_model(self, scheduled: SchedulerOutput) -> None:
        self._samples = scheduled.samples
        if self._step_s:
            time.sleep(max(0.0, self._next_at - time.perf_counter()))
            self._next_at = time.perf_counter() + self._step_s

    def sample_tokens(self, grammar: GrammarOutput | None) -> ModelRunnerOutput:
        samples = self._samples
        count = np.count_nonzero(samples)
        begin = self._at
        self._at = (begin + 257) % _ROWS
        return ModelRunnerOutput(
            num_sampled=samples.astype(np.int32), token_ids=self._tokens[begin : begin + count]
        )


class StubPlugin(EngineHooks):
    """Offers the worker `stub`."""

    PLUGIN = PluginInfo(
        name="benchmark-stub",
        api=">=1.0,<2",
        description="A worker that does nothing, to measure what is around it.",
    )

    @hookimpl
    def register_workers(self) -> Iterable[Provider[Worker]]:
        yield Provider(
            "stub", "benchmarks.stub_worker:StubWorker", options=StubOptions, description="Nothing."
        )


plugin = StubPlugin()
PLUGINS = (plugin,)
