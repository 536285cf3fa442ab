"""Drives a worker with steps made by hand: a scheduler and block allocation of the plainest kind.

Blocks are given out in random order, so that no test leans on neighbouring blocks.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from builtin_plugins.attention_cpu_paged.backend import CpuPagedAttention
from builtin_plugins.attention_sdpa.backend import SdpaAttention
from builtin_plugins.model_transformers.loader import TransformersLoader
from builtin_plugins.worker_cpu.worker import CpuWorker
from hookspecs.config import (
    CacheConfig,
    Dtype,
    EngineConfig,
    ExecutorConfig,
    ModelConfig,
    SchedulerConfig,
)
from hookspecs.contracts.attention import AttentionBackend, AttentionContext
from hookspecs.contracts.logits import Sampler, SamplerContext
from hookspecs.contracts.model import ModelLoader, ModelLoaderContext, ResolvedModel
from hookspecs.contracts.worker import WorkerContext
from hookspecs.errors import ProviderNotFoundError
from hookspecs.types.kv import KVCacheConfig, KVCacheGroup
from hookspecs.types.sampling import SamplingParams
from hookspecs.types.step import (
    BlockColumns,
    LogprobColumns,
    ModelRunnerOutput,
    NewRequest,
    RowFailure,
    SchedulerOutput,
)
from tests.worker_cpu.fakes import GreedySampler

_NUM_BLOCKS = 400
BACKENDS: dict[str, type[AttentionBackend]] = {
    "sdpa": SdpaAttention,
    "cpu_paged": CpuPagedAttention,
}


@dataclass
class Request:
    """What a test asks for, and what it got."""

    prompt: list[int]
    count: int
    """Tokens to generate."""
    start_step: int = 0
    params: SamplingParams = field(default_factory=SamplingParams)
    prompt_embeds: Any = None
    output: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    prompt_pieces: list[LogprobColumns] = field(default_factory=list)
    failure: RowFailure | None = None

    @property
    def finished(self) -> bool:
        """Whether it needs no more steps."""
        return self.failure is not None or len(self.output) == self.count


@dataclass
class _Running:
    request: Request
    slot: int
    computed: int
    tables: tuple[list[int], ...]


def int32(values: Sequence[int]) -> Any:
    """A column."""
    return np.array(values, dtype=np.int32)


class Driver:
    """One worker with a model, from init_device to shutdown."""

    def __init__(
        self,
        model: ResolvedModel,
        *,
        attention: str = "auto",
        block_size: int = 4,
        max_num_seqs: int = 4,
        dtype: Dtype = Dtype.AUTO,
        kv_dtype: Dtype = Dtype.AUTO,
        backends: Mapping[str, type[AttentionBackend]] = BACKENDS,
        make_sampler: Callable[[SamplerContext], Sampler] = GreedySampler,
        make_loader: Callable[[ModelLoaderContext], ModelLoader] = TransformersLoader,
        num_blocks: int = _NUM_BLOCKS,
        quantization: str | None = None,
    ) -> None:
        self.config = EngineConfig(
            model=ModelConfig(name=model.name, dtype=dtype, quantization=quantization),
            cache=CacheConfig(block_size=block_size, kv_dtype=kv_dtype, kv_bytes=2**20),
            scheduler=SchedulerConfig(max_num_seqs=max_num_seqs),
            executor=ExecutorConfig(attention=attention, threads=1),
        )
        self.reports: list[str] = []
        self.attention_name = ""
        self._backends = backends
        self.worker = CpuWorker(
            WorkerContext(
                config=self.config,
                model=model,
                max_model_len=model.info.max_model_len,
                create_loader=lambda **_: make_loader(ModelLoaderContext(config=self.config)),
                create_sampler=make_sampler,
                create_attention=self._create_attention,
                report=self.reports.append,
            )
        )
        self.worker.init_device()
        self.worker.load_model()
        specs = self.worker.kv_layer_specs()
        windows = list(dict.fromkeys(spec.sliding_window for spec in specs))
        groups = tuple(
            KVCacheGroup(tuple(s.layer for s in specs if s.sliding_window == window), window)
            for window in windows
        )
        bytes_per_token = specs[0].bytes_per_token * max(len(group.layers) for group in groups)
        self.block_size = block_size
        self.groups = groups
        self.worker.initialize_kv_cache(
            KVCacheConfig(
                num_blocks=num_blocks,
                block_size=block_size,
                groups=groups,
                bytes_per_block=bytes_per_token * block_size,
            )
        )
        self._free_blocks = list(range(1, num_blocks))
        random.Random(0).shuffle(self._free_blocks)
        self._free_slots = list(range(max_num_seqs))
        self._released: list[int] = []

    def _create_attention(self, name: str, device: str) -> AttentionBackend:
        if name not in self._backends:
            raise ProviderNotFoundError(f"no plugin provides {name!r}")
        self.attention_name = name
        return self._backends[name](
            AttentionContext(
                config=self.config, device=device, block_size=self.config.cache.block_size
            )
        )

    def run(
        self,
        *requests: Request,
        chunk: int = 1000,
        preempt_at: int | None = None,
        then: Callable[[], None] = lambda: None,
    ) -> None:
        """Run to the end; prompts `chunk` tokens a step, each request from its own step on. At
        step `preempt_at` all running requests lose their blocks and start again, after `then`."""
        waiting = sorted(requests, key=lambda request: request.start_step)
        running: list[_Running] = []
        step = 0
        while waiting or running:
            if step == preempt_at:
                for one in running:
                    self._release(one)
                waiting = [one.request for one in running] + waiting
                running = []
                then()
            new: list[_Running] = []
            while waiting and self._free_slots and waiting[0].start_step <= step:
                new.append(self._start(waiting.pop(0)))
            if running or new:
                self._step(step, running, new, chunk)
            running = [*running, *new]
            for one in [one for one in running if one.request.finished]:
                running.remove(one)
                self._release(one)
            step += 1

    def _start(self, request: Request) -> _Running:
        return _Running(request, self._free_slots.pop(), 0, tuple([] for _ in self.groups))

    def _release(self, one: _Running) -> None:
        for table in one.tables:
            self._free_blocks.extend(table)
        self._free_slots.append(one.slot)
        self._released.append(one.slot)

    def _step(
        self, step: int, running: list[_Running], new: list[_Running], chunk: int
    ) -> ModelRunnerOutput:
        rows = [*running, *new]
        known = [len(one.request.prompt) + len(one.request.output) for one in rows]
        counts = [min(chunk, n - one.computed) for n, one in zip(known, rows, strict=True)]
        added = [self._grow(one, count) for one, count in zip(rows, counts, strict=True)]
        scheduled = SchedulerOutput(
            step=step,
            slots=int32([one.slot for one in rows]),
            num_scheduled_tokens=int32(counts),
            num_computed_tokens=int32([one.computed for one in rows]),
            samples=np.array(
                [
                    one.computed + count == n
                    for one, count, n in zip(rows, counts, known, strict=True)
                ]
            ),
            total_num_scheduled_tokens=sum(counts),
            new_requests=[self._describe(one) for one in new],
            new_blocks=tuple(
                _columns(
                    [
                        (one.slot, blocks[group])
                        for one, blocks in zip(running, added[: len(running)], strict=True)
                    ]
                )
                for group in range(len(self.groups))
            ),
            released_slots=self._released,
        )
        self._released = []
        self.worker.execute_model(scheduled)
        output = self.worker.sample_tokens(None)
        self._apply(rows, counts, output)
        return output

    def _grow(self, one: _Running, count: int) -> list[list[int]]:
        needed = -(-(one.computed + count) // self.block_size)
        added = []
        for table in one.tables:
            blocks = [self._free_blocks.pop() for _ in range(needed - len(table))]
            table.extend(blocks)
            added.append(blocks)
        return added

    def _describe(self, one: _Running) -> NewRequest:
        request = one.request
        return NewRequest(
            request_id=f"request-{one.slot}",
            slot=one.slot,
            token_ids=request.prompt + request.output,
            num_prompt_tokens=len(request.prompt),
            num_computed_tokens=0,
            block_ids=tuple(list(table) for table in one.tables),
            sampling_params=request.params,
            prompt_embeds=request.prompt_embeds,
        )

    def _apply(self, rows: list[_Running], counts: list[int], output: ModelRunnerOutput) -> None:
        by_slot = {one.slot: one.request for one in rows}
        for one, count, (_, tokens) in zip(rows, counts, output.rows(), strict=True):
            one.computed += count
            one.request.output.extend(tokens)
        for slot, columns in output.prompt_logprobs.items():
            by_slot[slot].prompt_pieces.append(columns)
        for slot, failure in output.failures.items():
            by_slot[slot].failure = failure
        if output.logprobs is not None and output.logprob_rows is not None:
            values = output.logprobs.logprobs.tolist()
            for row, value in zip(output.logprob_rows.tolist(), values, strict=True):
                rows[row].request.logprobs.append(value)


def _columns(blocks: list[tuple[int, list[int]]]) -> BlockColumns:
    grown = [(slot, added) for slot, added in blocks if added]
    return BlockColumns(
        slots=int32([slot for slot, _ in grown]),
        indptr=int32([0, *itertools.accumulate(len(added) for _, added in grown)]),
        block_ids=int32([block for _, added in grown for block in added]),
    )


def random_prompt(length: int, seed: int = 0) -> list[int]:
    """Token ids from 3 on."""
    generator = torch.Generator().manual_seed(1000 * seed + length)
    tokens: list[int] = torch.randint(3, 199, (length,), generator=generator).tolist()
    return tokens
