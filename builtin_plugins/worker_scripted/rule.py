"""What the scripted model says without a script: a function of all tokens so far.

The *history* of tokens 0 to p is the sum over i <= p of mix(i * 2**32 + token i), modulo 2**64,
with the finalizer of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014) as mix. It stands for what a
model computes at position p: it is what the worker keeps in its KV cache, and the next token is
a function of it. So a token that is wrong, missing or in a wrong place changes all that follows.
The `offset` (see `weights`) is added to each next token, in the circle of all but the end token.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hookspecs.types.columns import Int32Column, Int64Column

__all__ = ["default_token", "next_tokens", "token_terms"]

# Arrays of no dimension: an operation with a scalar costs twice as much. And no operation below is
# in place: of one element that takes three times as long.
_MIX_1 = np.array(0xBF58476D1CE4E5B9, dtype=np.uint64)
_MIX_2 = np.array(0x94D049BB133111EB, dtype=np.uint64)
_27, _30, _31, _32 = (np.array(bits, dtype=np.uint64) for bits in (27, 30, 31, 32))


def token_terms(tokens: Int32Column, positions: Int64Column) -> NDArray[np.uint64]:
    """uint64[tokens]: what each token at its position adds to the history."""
    return _mix((positions.astype(np.uint64) << _32) + tokens.astype(np.uint64))


def next_tokens(
    histories: NDArray[np.uint64], vocab_size: int, eos_token_id: int, offset: int = 0
) -> Int32Column:
    """int32[rows]: any token but the end token."""
    count = vocab_size - 1
    places = _mix(histories) % np.array(count, dtype=np.uint64)
    if offset:
        places = (places + np.uint64(offset % count)) % np.uint64(count)
    tokens = places.astype(np.int32)
    skipped: Int32Column = tokens + (tokens >= np.array(eos_token_id, dtype=np.int32))
    return skipped


def default_token(
    token_ids: Sequence[int], vocab_size: int, eos_token_id: int, offset: int = 0
) -> int:
    """The token after `token_ids`: for tests that expect it."""
    tokens = np.array(token_ids, dtype=np.int32)
    history = token_terms(tokens, np.arange(len(tokens))).sum(keepdims=True, dtype=np.uint64)
    return int(next_tokens(history, vocab_size, eos_token_id, offset)[0])


def _mix(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    z = (z ^ (z >> _30)) * _MIX_1
    z = (z ^ (z >> _27)) * _MIX_2
    return z ^ (z >> _31)
