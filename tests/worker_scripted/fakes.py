"""A sampler with faults, by temperature: 1 is refused by an error of the request, 2 is a bug."""

from __future__ import annotations

from typing import cast

import numpy as np
import torch

from hookspecs.contracts.logits import SampledBatch, Sampler, SamplerContext
from hookspecs.errors import InvalidRequestError
from hookspecs.types.columns import Int32Column
from hookspecs.types.step import LogprobColumns, NewRequest


class FaultySampler(Sampler):
    """Takes the most likely token; refuses, or fails, in `add`."""

    def __init__(self, context: SamplerContext) -> None:
        super().__init__(context)
        self._slots: set[int] = set()

    def add(self, request: NewRequest) -> None:
        if request.sampling_params.temperature == 1.0:
            raise InvalidRequestError("temperature 1 is not for this sampler")
        if request.sampling_params.temperature == 2.0:
            raise ZeroDivisionError("a bug")
        self._slots.add(request.slot)

    def remove(self, slot: int) -> None:
        self._slots.remove(slot)

    def sample(self, logits: torch.Tensor, slots: Int32Column) -> SampledBatch:
        assert self._slots >= set(slots.tolist())
        return SampledBatch(token_ids=cast(Int32Column, logits.argmax(-1).numpy().astype(np.int32)))

    def prompt_logprobs(
        self, logits: torch.Tensor, targets: torch.Tensor, num_logprobs: int
    ) -> LogprobColumns:
        raise NotImplementedError
