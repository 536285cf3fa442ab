"""Sampler: logits to tokens for a batch. Logits processor: one request's own rule."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from hookspecs.contracts.base import Context
from hookspecs.types.columns import Int32Column
from hookspecs.types.sampling import SamplingParams
from hookspecs.types.step import LogprobColumns, NewRequest, RowFailure

if TYPE_CHECKING:
    import torch

__all__ = [
    "LogitsProcessor",
    "LogitsProcessorContext",
    "SampledBatch",
    "Sampler",
    "SamplerContext",
]


class SamplerContext(Context, frozen=True, kw_only=True):
    """Context of a sampler."""

    vocab_size: int
    max_num_seqs: int
    device: str


class SampledBatch(msgspec.Struct, kw_only=True):
    """Tokens of a batch; rows as in the logits given."""

    token_ids: Int32Column
    """int32[rows]; undefined for rows that failed."""
    logprobs: LogprobColumns | None = None
    """Of the rows in `logprob_rows`, in order: those that asked for them and did not fail."""
    logprob_rows: Int32Column | None = None
    """int32[positions]: the row of the logits each position of `logprobs` belongs to."""
    failures: dict[int, RowFailure] = msgspec.field(default_factory=dict)
    """Row (not slot) to why it has no token: nothing allowed, or NaN logits."""


class Sampler(ABC):
    """Worker process. Keeps what it needs of each slot from `add` to `remove`. Its logits are
    torch tensors; a worker without torch has no sampler and chooses tokens by itself.

    A seeded draw depends only on (seed, position), so neighbours, chunking and preemption do
    not change it. Without a seed each request draws for itself, and the same again in another
    engine with the same `model.seed`, requests and ids.
    """

    def __init__(self, context: SamplerContext) -> None:
        self.context = context

    @abstractmethod
    def add(self, request: NewRequest) -> None:
        """A request starts in its slot, or resumes with its earlier tokens.

        Raise RequestError to refuse it: it ends with that error, its neighbours go on. Keep
        nothing of it then, since neither `sample` nor `remove` is called for it. Any other
        exception is a fault of the sampler: it stops the engine, with the sampler's plugin named.
        """

    @abstractmethod
    def remove(self, slot: int) -> None:
        """The slot of a request that was added became free."""

    @abstractmethod
    def sample(self, logits: torch.Tensor, slots: Int32Column) -> SampledBatch:
        """Choose a token for each row of float32 logits [rows, vocab] (may be changed in
        place) and count it as the slot's next token. A greedy row takes the lowest id of those
        with the largest logit."""

    @abstractmethod
    def prompt_logprobs(
        self, logits: torch.Tensor, targets: torch.Tensor, num_logprobs: int
    ) -> LogprobColumns:
        """Log-probabilities of int64 targets [positions] under float32 logits [positions,
        vocab], and of the num_logprobs most likely (-1: all)."""


class LogitsProcessorContext(Context, frozen=True, kw_only=True):
    """Context of a logits processor: of one request."""

    request_id: str
    params: SamplingParams
    request_options: Any
    """The provider's struct of `request_options`, made from `params.extensions[name]`: what this
    request asks for, checked, defaults filled in."""
    vocab_size: int


class LogitsProcessor(ABC):
    """One request's own rule for its logits. Worker process, the worker's thread.

    A request asks for it by its provider's name in `SamplingParams.extensions`, with what its
    provider declares as `request_options`; the context has them. It gets a new object each time
    it starts or resumes, which then hears the tokens generated before: what it does must depend
    on tokens alone.
    Processors come before the sampler, in the order of their names.

    What its constructor, `start`, `mask` or `accept` raises ends that request, and no other. It
    is counted, observers hear of it (`on_plugin_failed`), and the first traceback is logged. A
    RequestError is none of that: so it refuses the request on purpose.
    The whole batch waits for `mask` and `accept`: what a token costs must not grow with the text.
    Nobody tells it of the end: its object is dropped.
    """

    def __init__(self, context: LogitsProcessorContext) -> None:
        self.context = context

    @abstractmethod
    def start(self, prompt: Sequence[int], generated: Sequence[int]) -> None:
        """The request starts, or resumes with the tokens generated before."""

    @abstractmethod
    def mask(self, logits: torch.Tensor) -> torch.Tensor:
        """The logits float32 [vocab] for the next token; may be changed in place. Neither NaN nor
        +inf, and not -inf alone: raise RequestError where no token may follow."""

    @abstractmethod
    def accept(self, token: int) -> None:
        """The next token was chosen."""
