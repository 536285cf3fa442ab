"""What the sampler keeps of each slot, in columns indexed by slot."""

from __future__ import annotations

import numpy as np

from hookspecs.types.sampling import SamplingParams

__all__ = ["FILTERED", "LOGPROBS", "PENALIZED", "RANDOM", "RULED", "SlotColumns", "penalized"]

# Bits of SlotColumns.features: what a row needs besides the most likely token.
RANDOM = 1
"""A draw."""
FILTERED = 2
"""A draw with min_p, top_k or top_p."""
RULED = 4
"""Masks, or logit bias."""
PENALIZED = 8
LOGPROBS = 16


def penalized(params: SamplingParams) -> bool:
    """Whether any penalty is on."""
    return (
        params.repetition_penalty != 1.0
        or params.frequency_penalty != 0.0
        or params.presence_penalty != 0.0
    )


class SlotColumns:
    """One element a slot. A slot's elements hold from `set` to `clear`."""

    def __init__(self, max_num_seqs: int, vocab_size: int) -> None:
        self._vocab_size = vocab_size
        self.features = np.zeros(max_num_seqs, dtype=np.uint8)
        self.temperature = np.ones(max_num_seqs, dtype=np.float64)
        self.min_p = np.zeros(max_num_seqs, dtype=np.float64)
        self.top_k = np.zeros(max_num_seqs, dtype=np.int64)
        """Tokens kept: vocab size when top_k is off."""
        self.top_p = np.ones(max_num_seqs, dtype=np.float64)
        self.seeds = np.zeros(max_num_seqs, dtype=np.uint64)
        self.positions = np.zeros(max_num_seqs, dtype=np.int64)
        """Output tokens so far."""
        self.num_logprobs = np.zeros(max_num_seqs, dtype=np.int64)

    def set(
        self, slot: int, params: SamplingParams, *, seed: int, position: int, ruled: bool
    ) -> None:
        """Fill all columns of a slot."""
        vocab = self._vocab_size
        top_k = params.top_k if 0 < params.top_k < vocab else vocab
        features = RULED * ruled | PENALIZED * penalized(params)
        if not params.greedy:
            filtered = params.min_p > 0 or top_k < vocab or params.top_p < 1
            features |= RANDOM | FILTERED * filtered
        if params.logprobs is not None:
            features |= LOGPROBS
            self.num_logprobs[slot] = params.logprobs
        self.features[slot] = features
        self.temperature[slot] = params.temperature
        self.min_p[slot] = params.min_p
        self.top_k[slot] = top_k
        self.top_p[slot] = params.top_p
        self.seeds[slot] = seed
        self.positions[slot] = position

    def clear(self, slot: int) -> None:
        """A slot became free."""
        self.features[slot] = 0
