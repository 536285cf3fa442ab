"""A sampler that takes the most likely token, for tests of the worker alone."""

from __future__ import annotations

import numpy as np
import torch

from hookspecs.contracts.logits import SampledBatch, Sampler, SamplerContext
from hookspecs.errors import InvalidRequestError
from hookspecs.types.columns import Int32Column
from hookspecs.types.step import LogprobColumns, NewRequest, RowFailure


class GreedySampler(Sampler):
    """Fails rows with NaN, refuses requests with min_p, and spoils the logits that it is given,
    as a sampler may."""

    def __init__(self, context: SamplerContext) -> None:
        super().__init__(context)
        self.requests: dict[int, str] = {}

    def add(self, request: NewRequest) -> None:
        if request.sampling_params.min_p:
            raise InvalidRequestError("min_p is not known here")
        assert request.slot not in self.requests
        self.requests[request.slot] = request.request_id

    def remove(self, slot: int) -> None:
        del self.requests[slot]

    def sample(self, logits: torch.Tensor, slots: Int32Column) -> SampledBatch:
        assert all(slot in self.requests for slot in slots.tolist())
        tokens = logits.argmax(-1).numpy().astype(np.int32)
        chosen = self.prompt_logprobs(logits, torch.from_numpy(tokens).long(), 0)
        bad = torch.isnan(logits).any(-1).nonzero().flatten().tolist()
        logits.fill_(torch.nan)
        return SampledBatch(
            token_ids=tokens,
            logprobs=chosen,
            logprob_rows=np.arange(len(slots), dtype=np.int32),
            failures={row: RowFailure(message="NaN logits") for row in bad},
        )

    def prompt_logprobs(
        self, logits: torch.Tensor, targets: torch.Tensor, num_logprobs: int
    ) -> LogprobColumns:
        assert logits.dtype == torch.float32
        logprobs = torch.log_softmax(logits, -1)
        ids = torch.cat([targets[:, None], logprobs.topk(num_logprobs, -1).indices], 1)
        values = logprobs.gather(1, ids)
        ranks = (logprobs[:, None] > values[..., None]).sum(-1) + 1
        return LogprobColumns(
            counts=np.full(len(targets), num_logprobs + 1, dtype=np.int32),
            token_ids=ids.flatten().numpy().astype(np.int32),
            logprobs=values.flatten().numpy(),
            ranks=ranks.flatten().numpy().astype(np.int32),
        )
