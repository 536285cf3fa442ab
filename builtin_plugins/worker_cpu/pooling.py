"""Pooling requests: hidden states of their prompts, chunk by chunk, to one vector each.

A mean is kept as the float32 sum over the chunks so far, by slot. A request that was preempted
starts again from its first token, in a slot that was released in between, and so with no sum.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from builtin_plugins.worker_cpu.inputs import StepInputs
from hookspecs.types.columns import BoolColumn, Float32Column
from hookspecs.types.pooling import PoolingParams, PoolingType
from hookspecs.types.step import NewRequest, RowFailure

__all__ = ["HiddenPiece", "Pooler", "finished_vector"]


@dataclass(frozen=True, slots=True)
class HiddenPiece:
    """Hidden states of one row that are wanted."""

    slot: int
    token: int
    """Index of the first in the flattened batch."""
    length: int
    ends: bool
    """Whether the prompt ends with this piece."""


@dataclass
class _Pooling:
    """A pooling request in its slot."""

    params: PoolingParams
    num_prompt_tokens: int
    total: torch.Tensor | None = None
    """float32 [hidden size]: the sum so far, of a mean."""


class Pooler:
    """The pooling requests by slot, from `add` to `remove`. Worker process, one thread."""

    def __init__(self, hidden_size: int) -> None:
        """`hidden_size`: what the model's configuration says; 0 if it does not."""
        self._hidden_size = hidden_size
        self._requests: dict[int, _Pooling] = {}

    @property
    def slots(self) -> list[int]:
        """Slots of pooling requests."""
        return list(self._requests)

    def add(self, request: NewRequest, params: PoolingParams) -> None:
        """A pooling request starts in its slot."""
        self._requests[request.slot] = _Pooling(params, request.num_prompt_tokens)

    def remove(self, slot: int) -> bool:
        """A slot became free; whether it held a pooling request."""
        return self._requests.pop(slot, None) is not None

    def pieces(self, inputs: StepInputs, samples: BoolColumn) -> list[HiddenPiece]:
        """What this step's hidden states are wanted for, in row order. `samples`: the rows that
        reach their last token."""
        pieces: list[HiddenPiece] = []
        if not self._requests:
            return pieces
        for row, slot in enumerate(inputs.slots.tolist()):
            request = self._requests.get(slot)
            if request is None:
                continue
            begin, end = inputs.query_start[row : row + 2].tolist()
            ends = bool(samples[row])
            if request.params.pooling is PoolingType.MEAN:
                pieces.append(HiddenPiece(slot, begin, end - begin, ends))
            elif ends:
                pieces.append(HiddenPiece(slot, end - 1, 1, ends))
        return pieces

    def pool(
        self, pieces: list[HiddenPiece], hidden: torch.Tensor
    ) -> tuple[dict[int, Float32Column], dict[int, RowFailure]]:
        """Vectors of the prompts that end, and failures, by slot. `hidden` float32 [sum of
        lengths, hidden size]: of the pieces, in order."""
        vectors: dict[int, Float32Column] = {}
        failures: dict[int, RowFailure] = {}
        at = 0
        for piece in pieces:
            states = hidden[at : at + piece.length]
            at += piece.length
            if self._hidden_size and states.shape[1] != self._hidden_size:
                failures[piece.slot] = RowFailure(
                    f"the model's last hidden states have {states.shape[1]} elements, but its "
                    f"configuration says {self._hidden_size}; it can not be used for pooling",
                    poisoned=False,
                )
                continue
            request = self._requests[piece.slot]
            if request.params.pooling is PoolingType.MEAN:
                total = states.sum(0)
                request.total = total if request.total is None else request.total + total
                pooled = request.total / request.num_prompt_tokens
            else:
                pooled = states[0]
            if not piece.ends:
                continue
            if torch.isfinite(pooled).all():
                vectors[piece.slot] = finished_vector(pooled.cpu().numpy(), request.params)
            else:
                failures[piece.slot] = RowFailure("the model's hidden states are not finite")
        return vectors, failures


def finished_vector(pooled: Float32Column, params: PoolingParams) -> Float32Column:
    """`pooled` cut to the wanted dimensions, then scaled to length 1 if wanted; zero stays zero.
    A new array of what `params` ask for."""
    vector = pooled[: params.dimensions].astype(np.float64)
    # In float64, where no square of a float32 is infinite or zero.
    norm = float(np.linalg.norm(vector))
    if params.normalize and norm > 0:
        vector /= norm
    return vector.astype(np.float32)
