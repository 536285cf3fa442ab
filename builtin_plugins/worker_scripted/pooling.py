"""What the scripted model says to pooling requests: exact vectors, known from the prompt alone.

The hidden state of token t is float32[8]; its element j is t * (j + 1) modulo 101. So token 0 has
the zero vector. A mean is the sum over the tokens that a slot really computed, divided by the
length of the prompt: tokens that were left out or computed twice change it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hookspecs.types.columns import BoolColumn, Float32Column
from hookspecs.types.pooling import PoolingParams, PoolingType
from hookspecs.types.step import NewRequest, SchedulerOutput

__all__ = ["HIDDEN_SIZE", "ScriptedPooler", "pooled_vector"]

HIDDEN_SIZE: Final = 8
_MODULUS: Final = 101


class ScriptedPooler:
    """The pooling requests by slot. Worker process, one thread."""

    def __init__(self, max_num_seqs: int) -> None:
        self.pooling: BoolColumn = np.zeros(max_num_seqs, dtype=np.bool_)
        """bool[slots]: holds a pooling request."""
        self._params: dict[int, PoolingParams] = {}
        self._lengths: dict[int, int] = {}
        """Slot to the length of its prompt."""
        self._sums: dict[int, NDArray[np.int64]] = {}

    def __bool__(self) -> bool:
        """Whether any slot holds one."""
        return bool(self._params)

    def add(self, request: NewRequest, params: PoolingParams) -> None:
        """A pooling request starts in its slot."""
        slot = request.slot
        self.pooling[slot] = True
        self._params[slot] = params
        self._lengths[slot] = request.num_prompt_tokens
        self._sums[slot] = np.zeros(HIDDEN_SIZE, dtype=np.int64)

    def remove(self, slot: int) -> None:
        """A slot became free."""
        if self.pooling[slot]:
            self.pooling[slot] = False
            del self._params[slot], self._lengths[slot], self._sums[slot]

    def pool(
        self, scheduled: SchedulerOutput, token_ids: NDArray[np.int32]
    ) -> dict[int, Float32Column]:
        """Slot to vector, of the rows whose prompt ends. `token_ids`: [slots, positions]."""
        vectors: dict[int, Float32Column] = {}
        for slot, count, computed, samples in scheduled.rows():
            params = self._params.get(slot)
            if params is None:
                continue
            states = _hidden_states(token_ids[slot, computed : computed + count])
            self._sums[slot] += states.sum(0)
            if samples:
                mean = params.pooling is PoolingType.MEAN
                pooled = self._sums[slot] / self._lengths[slot] if mean else states[-1]
                vectors[slot] = _finished(pooled, params)
        return vectors


def pooled_vector(token_ids: Sequence[int], params: PoolingParams) -> Float32Column:
    """The vector of a prompt: for tests that expect it."""
    states = _hidden_states(np.array(token_ids, dtype=np.int32))
    mean = params.pooling is PoolingType.MEAN
    return _finished(states.sum(0) / len(states) if mean else states[-1], params)


def _hidden_states(token_ids: NDArray[np.int32]) -> NDArray[np.int64]:
    """int64 [tokens, 8]"""
    return token_ids.astype(np.int64)[:, None] * np.arange(1, HIDDEN_SIZE + 1) % _MODULUS


def _finished(
    pooled: NDArray[np.int64] | NDArray[np.float64], params: PoolingParams
) -> Float32Column:
    """Cut to the wanted dimensions, then scaled to length 1 if wanted; zero stays zero."""
    vector = pooled[: params.dimensions].astype(np.float64)
    norm = float(np.linalg.norm(vector))
    if params.normalize and norm > 0:
        vector /= norm
    return vector.astype(np.float32)
