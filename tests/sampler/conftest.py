"""Builds samplers and requests."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import torch

from builtin_plugins.sampler_default.sampler import DefaultSampler
from hookspecs.config import EngineConfig, ModelConfig
from hookspecs.contracts.logits import SampledBatch, Sampler, SamplerContext
from hookspecs.types.sampling import SamplingParams
from hookspecs.types.step import NewRequest

MakeSampler = Callable[..., Sampler]
MakeRequest = Callable[..., NewRequest]
Sample = Callable[..., SampledBatch]


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    """Tensors here are too small to share between threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def make_sampler() -> MakeSampler:
    """A sampler for `vocab_size` and up to `max_num_seqs` slots; keywords: model settings."""

    def make(vocab_size: int, max_num_seqs: int = 16, **model: Any) -> Sampler:
        config = EngineConfig(model=ModelConfig(**model))
        context = SamplerContext(
            config=config, vocab_size=vocab_size, max_num_seqs=max_num_seqs, device="cpu"
        )
        return DefaultSampler(context)

    return make


@pytest.fixture(scope="session")
def make_request() -> MakeRequest:
    """A request in a slot; keywords: sampling parameters."""

    def make(
        slot: int = 0,
        prompt: Sequence[int] = (0,),
        outputs: Sequence[int] = (),
        *,
        eos_token_id: int | None = None,
        request_id: str = "r",
        **params: Any,
    ) -> NewRequest:
        return NewRequest(
            request_id=request_id,
            slot=slot,
            token_ids=[*prompt, *outputs],
            num_prompt_tokens=len(prompt),
            num_computed_tokens=0,
            block_ids=([],),
            sampling_params=SamplingParams(**params),
            eos_token_id=eos_token_id,
        )

    return make


@pytest.fixture(scope="session")
def sample() -> Sample:
    """Sample from rows of logits for slots."""

    def run(sampler: Sampler, rows: Any, slots: Sequence[int] = (0,)) -> SampledBatch:
        logits = torch.as_tensor(np.array(rows, dtype=np.float32))
        return sampler.sample(logits, np.array(slots, dtype=np.int32))

    return run
