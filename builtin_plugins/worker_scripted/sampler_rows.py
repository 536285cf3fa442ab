"""Rows that go through logits processors and the configured sampler."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from framework.sdk.logits_processors import LogitsProcessors
from hookspecs.contracts.logits import SampledBatch, Sampler
from hookspecs.types.columns import Float32Column, Int32Column
from hookspecs.types.sampling import SamplingParams
from hookspecs.types.step import LogprobColumns, NewRequest, RowFailure

if TYPE_CHECKING:
    import torch

__all__ = ["TOKEN_LOGIT", "SamplerRows"]

TOKEN_LOGIT = 20.0
"""Logit of a row's token; the other tokens have 0."""


class SamplerRows:
    """The sampler and the slots it knows.

    It is created for the first request that needs it: plain ones load no torch.
    """

    def __init__(
        self,
        create_sampler: Callable[[], Sampler],
        processors: LogitsProcessors,
        vocab_size: int,
    ) -> None:
        self._create_sampler = create_sampler
        self._processors = processors
        self._vocab_size = vocab_size
        self._sampler: Sampler | None = None
        self.slots: set[int] = set()

    def add(self, request: NewRequest, *, given_logits: bool) -> RowFailure | None:
        """A request starts, with scripted logits or without; it becomes one of `slots` if it
        needs the sampler. Its failure if its logits processors can not run. RequestError if the
        sampler refuses it."""
        failure = self._processors.add(request)
        if failure is not None:
            return failure
        processed = request.slot in self._processors
        if processed or given_logits or not _plain_greedy(request.sampling_params):
            self._lazy().add(request)
            self.slots.add(request.slot)
        return None

    def remove(self, slot: int) -> None:
        """A slot became free; it need not be one of `slots`."""
        self._processors.remove(slot)
        if slot in self.slots:
            self.slots.remove(slot)
            self._lazy().remove(slot)

    def sample(
        self, slots: Int32Column, tokens: Int32Column, given: dict[int, Float32Column]
    ) -> SampledBatch:
        """Sample for slots, each from logits for its token or from those given for its index."""
        import torch

        logits = self._logits_for(tokens)
        for index, row in given.items():
            logits[index] = torch.from_numpy(row)
        return self._processors.sample(self._lazy(), logits, slots)

    def prompt_logprobs(
        self, predicted: Int32Column, targets: Int32Column, count: int, *, first: bool
    ) -> LogprobColumns:
        """Logprobs of targets under logits for the predicted tokens, position by position; with
        `first`, after a position without entries, for the first token of the prompt."""
        import torch

        wanted = torch.from_numpy(targets.astype(np.int64))
        columns = self._lazy().prompt_logprobs(self._logits_for(predicted), wanted, count)
        if not first:
            return columns
        counts = np.concatenate((np.zeros(1, dtype=np.int32), columns.counts))
        return msgspec.structs.replace(columns, counts=counts)

    def _lazy(self) -> Sampler:
        if self._sampler is None:
            self._sampler = self._create_sampler()
        return self._sampler

    def _logits_for(self, tokens: Int32Column) -> torch.Tensor:
        import torch

        logits = torch.zeros((len(tokens), self._vocab_size), dtype=torch.float32)
        logits[torch.arange(len(tokens)), torch.from_numpy(tokens.astype(np.int64))] = TOKEN_LOGIT
        return logits


def _plain_greedy(params: SamplingParams) -> bool:
    """Whether the most likely token is the output, whatever the logits are."""
    return (
        params.greedy
        and params.logprobs is None
        and params.min_tokens <= 0
        and params.allowed_token_ids is None
        and not params.bad_words_token_ids
        and not params.logit_bias
        and params.repetition_penalty == 1.0
        and params.frequency_penalty == 0.0
        and params.presence_penalty == 0.0
    )
