"""The persistent batch: one element (or row) a slot."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from builtin_plugins.worker_scripted.rule import token_terms
from hookspecs.types.columns import Int32Column
from hookspecs.types.step import NewRequest

__all__ = ["ScriptedBatch"]


class ScriptedBatch:
    """The tokens of each slot, and their history (see `rule`) at each position."""

    def __init__(self, max_num_seqs: int, max_model_len: int) -> None:
        shape = (max_num_seqs, max_model_len)
        self.token_ids = np.zeros(shape, dtype=np.int32)
        self.histories = np.zeros(shape, dtype=np.uint64)
        self.num_tokens = np.zeros(max_num_seqs, dtype=np.int64)
        """Known tokens, prompt and sampled; 0 in a free slot."""
        self.num_prompt_tokens = np.zeros(max_num_seqs, dtype=np.int64)

    def add(self, request: NewRequest) -> None:
        """A request starts, or resumes, in its slot."""
        slot, count = request.slot, len(request.token_ids)
        tokens = np.array(request.token_ids, dtype=np.int32)
        self.token_ids[slot, :count] = tokens
        np.cumsum(token_terms(tokens, np.arange(count)), out=self.histories[slot, :count])
        self.num_tokens[slot] = count
        self.num_prompt_tokens[slot] = request.num_prompt_tokens

    def remove(self, slot: int) -> None:
        """A slot became free."""
        self.num_tokens[slot] = 0

    def last_histories(self, slots: Int32Column) -> NDArray[np.uint64]:
        """uint64[slots]: of all known tokens."""
        return self.histories[slots, self.num_tokens[slots] - 1]

    def num_outputs(self, slot: int) -> int:
        """Output tokens so far."""
        return int(self.num_tokens[slot] - self.num_prompt_tokens[slot])

    def append(self, slots: Int32Column, tokens: Int32Column) -> None:
        """One token more for each slot."""
        at = self.num_tokens[slots]
        self.token_ids[slots, at] = tokens
        self.histories[slots, at] = self.histories[slots, at - 1] + token_terms(tokens, at)
        self.num_tokens[slots] = at + 1
