"""A scripted worker driven by hand-made steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from builtin_plugins.sampler_default.sampler import DefaultSampler
from builtin_plugins.worker_scripted.options import ScriptedOptions
from builtin_plugins.worker_scripted.rule import default_token
from builtin_plugins.worker_scripted.worker import ScriptedWorker
from hookspecs.config import EngineConfig, SchedulerConfig
from hookspecs.contracts.logits import Sampler, SamplerContext
from hookspecs.contracts.model import ModelInfo, ResolvedModel
from hookspecs.contracts.worker import WorkerContext
from hookspecs.types.kv import KVCacheConfig, KVCacheGroup
from hookspecs.types.sampling import SamplingParams
from hookspecs.types.step import BlockColumns, ModelRunnerOutput, NewRequest, SchedulerOutput

BLOCK_SIZE = 4


class Driver:
    """A worker with blocks of 4 tokens, and short ways to say what a step holds."""

    def __init__(
        self, windows: Sequence[int | None] = (None,), max_num_seqs: int = 8, **options: Any
    ) -> None:
        self.options = ScriptedOptions(**options)
        self.samplers = 0
        config = EngineConfig(scheduler=SchedulerConfig(max_num_seqs=max_num_seqs))
        info = ModelInfo(
            architecture="Scripted", vocab_size=self.options.vocab_size, max_model_len=64
        )
        self.worker = ScriptedWorker(
            WorkerContext(
                config=config,
                options=self.options,
                model=ResolvedModel(name="scripted", path=None, tokenizer_path=None, info=info),
                max_model_len=64,
                create_loader=_never,
                create_sampler=self._create_sampler,
                create_attention=_never,
            )
        )
        self.worker.init_device()
        self.worker.load_model()
        groups = tuple(KVCacheGroup((i,), window) for i, window in enumerate(windows))
        self.worker.initialize_kv_cache(
            KVCacheConfig(num_blocks=32, block_size=BLOCK_SIZE, groups=groups, bytes_per_block=1)
        )
        self.steps = 0

    def _create_sampler(self, context: SamplerContext) -> Sampler:
        self.samplers += 1
        return DefaultSampler(context)

    def request(
        self,
        slot: int,
        tokens: Sequence[int],
        blocks: Sequence[int] = (),
        *,
        tables: Sequence[Sequence[int]] | None = None,
        prompt: int | None = None,
        computed: int = 0,
        script: Any = None,
        **params: Any,
    ) -> NewRequest:
        """A request with all its tokens; `prompt` of them are the prompt. Greedy by default;
        `blocks` of one group, or the `tables` of several."""
        params.setdefault("temperature", 0)
        extensions = {} if script is None else {"scripted": script}
        return NewRequest(
            request_id=f"r{slot}",
            slot=slot,
            token_ids=[*tokens],
            num_prompt_tokens=len(tokens) if prompt is None else prompt,
            num_computed_tokens=computed,
            block_ids=tuple([*table] for table in tables or [blocks]),
            sampling_params=SamplingParams(extensions=extensions, **params),
            eos_token_id=self.options.eos_token_id,
        )

    def step(
        self,
        *rows: tuple[int, int, int, bool],
        new: Sequence[NewRequest] = (),
        blocks: Sequence[dict[int, list[int]]] = (),
        released: Sequence[int] = (),
    ) -> ModelRunnerOutput:
        """Rows are (slot, tokens scheduled, tokens computed, samples); `blocks` is a dict of slot
        to appended blocks for each group."""
        columns = [np.array([row[i] for row in rows], dtype=np.int32) for i in range(3)]
        self.worker.execute_model(
            SchedulerOutput(
                step=self.steps,
                slots=columns[0],
                num_scheduled_tokens=columns[1],
                num_computed_tokens=columns[2],
                samples=np.array([row[3] for row in rows], dtype=np.bool_),
                total_num_scheduled_tokens=int(columns[1].sum()),
                new_requests=[*new],
                new_blocks=tuple(_block_columns(group) for group in blocks),
                released_slots=[*released],
            )
        )
        self.steps += 1
        return self.worker.sample_tokens(None)

    def rule(self, tokens: Sequence[int], count: int) -> list[int]:
        """The tokens that follow by the default rule."""
        known = [*tokens]
        for _ in range(count):
            known.append(default_token(known, self.options.vocab_size, self.options.eos_token_id))
        return known[len(tokens) :]


def _block_columns(group: dict[int, list[int]]) -> BlockColumns:
    ids = [block for blocks in group.values() for block in blocks]
    bounds = np.cumsum([0, *(len(blocks) for blocks in group.values())])
    return BlockColumns(
        np.array([*group], dtype=np.int32),
        bounds.astype(np.int32),
        np.array(ids, dtype=np.int32),
    )


def _never(*args: Any) -> Any:
    raise AssertionError("the scripted worker has no use for this")


@pytest.fixture
def drive() -> Callable[..., Driver]:
    """Makes a worker; keywords: `windows` of the groups, and its options."""
    return Driver
