"""The persistent batch: one element (or row) a slot."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from builtin_plugins.worker_scripted.rule import token_terms
from hookspecs.types.columns import Int32Column
from hookspecs.types.step import NewRequest

__all__ = ["ScriptedBatch"]

_ONE = np.array(1, dtype=np.int64)


class ScriptedBatch:
    """The tokens of each slot, and their history (see `rule`) at each position."""

    def __init__(self, max_num_seqs: int, max_model_len: int, *, verified: bool) -> None:
        """`verified`: sampled tokens are kept too, not only those that a request starts with."""
        self._keeps_sampled = verified
        shape = (max_num_seqs, max_model_len)
        self.token_ids = np.zeros(shape, dtype=np.int32)
        self.histories = np.zeros(shape, dtype=np.uint64)
        self._last = np.zeros(max_num_seqs, dtype=np.uint64)
        """Of all known tokens."""
        self.num_tokens = np.zeros(max_num_seqs, dtype=np.int64)
        """Known tokens, prompt and sampled; 0 in a free slot."""
        self.num_prompt_tokens = np.zeros(max_num_seqs, dtype=np.int64)

    def add(self, request: NewRequest) -> None:
        """A request starts, or resumes, in its slot."""
        slot, count = request.slot, len(request.token_ids)
        tokens = np.array(request.token_ids, dtype=np.int32)
        self.token_ids[slot, :count] = tokens
        np.cumsum(token_terms(tokens, np.arange(count)), out=self.histories[slot, :count])
        self._last[slot] = self.histories[slot, count - 1]
        self.num_tokens[slot] = count
        self.num_prompt_tokens[slot] = request.num_prompt_tokens

    def remove(self, slot: int) -> None:
        """A slot became free."""
        self.num_tokens[slot] = 0

    def last_histories(self, slots: NDArray[np.intp]) -> NDArray[np.uint64]:
        """uint64[slots]: of all known tokens."""
        return self._last[slots]

    def num_outputs(self, slot: int) -> int:
        """Output tokens so far."""
        return int(self.num_tokens[slot] - self.num_prompt_tokens[slot])

    def append(self, slots: NDArray[np.intp], tokens: Int32Column) -> None:
        """One token more for each slot."""
        at = self.num_tokens[slots]
        self._last[slots] = last = self._last[slots] + token_terms(tokens, at)
        if self._keeps_sampled:
            self.token_ids[slots, at] = tokens
            self.histories[slots, at] = last
        self.num_tokens[slots] = at + _ONE
