"""The sampler: the most likely token, and log-probabilities."""

import numpy as np
import torch

from hookspecs.contracts.logits import SampledBatch, Sampler, SamplerContext
from hookspecs.types.columns import Int32Column
from hookspecs.types.sampling import SamplingParams
from hookspecs.types.step import LogprobColumns, NewRequest, RowFailure


class GreedySampler(Sampler):
    """Knows the parameters of each slot, to refuse draws and to tell log-probabilities."""

    def __init__(self, context: SamplerContext) -> None:
        super().__init__(context)
        self._params: dict[int, SamplingParams] = {}

    def add(self, request: NewRequest) -> None:
        """The slot is taken."""
        self._params[request.slot] = request.sampling_params

    def remove(self, slot: int) -> None:
        """The slot is free."""
        del self._params[slot]

    def sample(self, logits: torch.Tensor, slots: Int32Column) -> SampledBatch:
        """float32[rows, vocab] to int32[rows]."""
        params = [self._params[int(slot)] for slot in slots]
        tokens = logits.argmax(-1)
        failures = {
            row: RowFailure(
                f"temperature is {asked.temperature}: this sampler only takes the most likely "
                "token; set it to 0 or select another sampler",
                poisoned=False,
            )
            for row, asked in enumerate(params)
            if not asked.greedy
        }
        told = [row for row, asked in enumerate(params) if asked.logprobs is not None]
        told = [row for row in told if row not in failures]
        wanted = [params[row].logprobs or 0 for row in told]
        return SampledBatch(
            token_ids=tokens.to(torch.int32).numpy(),
            logprobs=_logprobs(logits[told], tokens[told], wanted) if told else None,
            logprob_rows=np.array(told, np.int32) if told else None,
            failures=failures,
        )

    def prompt_logprobs(
        self, logits: torch.Tensor, targets: torch.Tensor, num_logprobs: int
    ) -> LogprobColumns:
        """One position for each row of logits."""
        return _logprobs(logits, targets, [num_logprobs] * len(targets))


def _logprobs(logits: torch.Tensor, chosen: torch.Tensor, wanted: list[int]) -> LogprobColumns:
    """The chosen token first, then the `wanted` most likely ones (-1: all)."""
    logprobs = logits.log_softmax(-1)
    ids: list[int] = []
    values: list[float] = []
    ranks: list[int] = []
    counts: list[int] = []
    for row, token, count in zip(logprobs, chosen.tolist(), wanted, strict=True):
        best, order = row.topk(len(row) if count < 0 else count)
        ids += [token, *order.tolist()]
        values += [float(row[token]), *best.tolist()]
        ranks += [int((row > row[token]).sum()) + 1, *range(1, len(order) + 1)]
        counts.append(1 + len(order))
    return LogprobColumns(
        counts=np.array(counts, np.int32),
        token_ids=np.array(ids, np.int32),
        logprobs=np.array(values, np.float32),
        ranks=np.array(ranks, np.int32),
    )
