"""Columns of log-probabilities to what users get: a dict of token id to Logprob a position."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from framework.frontend.decode_stream import REPLACEMENT
from framework.frontend.tokenizer import Tokenizer
from hookspecs.types.outputs import Logprob
from hookspecs.types.step import LogprobColumns

__all__ = [
    "NUM_CONTEXT",
    "LogprobReader",
    "Position",
    "decode_position",
    "decode_prompt",
    "token_string",
]

NUM_CONTEXT: Final = 4
"""Tokens before one that may hold the beginning of its character."""

Position = list[tuple[int, float, int]]
"""(token id, logprob, rank) of one position; the chosen token first."""


class LogprobReader:
    """Access by position to one batch of columns, which are taken apart once."""

    def __init__(self, columns: LogprobColumns) -> None:
        ends = np.cumsum(columns.counts)
        self._starts: list[int] = (ends - columns.counts).tolist()
        self._ends: list[int] = ends.tolist()
        self._ids: list[int] = columns.token_ids.tolist()
        self._logprobs: list[float] = columns.logprobs.tolist()
        self._ranks: list[int] = columns.ranks.tolist()

    def __len__(self) -> int:
        return len(self._ends)

    def position(self, index: int) -> Position:
        """The entries of one position; empty if it has none."""
        at = slice(self._starts[index], self._ends[index])
        return list(zip(self._ids[at], self._logprobs[at], self._ranks[at], strict=True))


def token_string(tokenizer: Tokenizer, token_id: int, previous: Sequence[int]) -> str:
    """What `token_id` adds to the text after the tokens `previous`: always valid text. A token
    that ends inside a character adds nothing of it; the one that completes it adds it whole."""
    text = tokenizer.token_text(token_id)
    if REPLACEMENT not in text:
        return text
    context = list(previous[-NUM_CONTEXT:])
    before = tokenizer.decode(context, skip_special_tokens=False).rstrip(REPLACEMENT)
    both = tokenizer.decode([*context, token_id], skip_special_tokens=False)
    added = both[len(before) :] if both.startswith(before) else text
    return added.replace(REPLACEMENT, "")


def decode_position(
    position: Position, tokenizer: Tokenizer | None, previous: Sequence[int]
) -> dict[int, Logprob]:
    """One position's dict, the chosen token first; k alternatives, or k + 1 entries when the
    chosen token is not among the k most likely. Without tokenizer, no token strings."""
    return {
        token_id: Logprob(
            logprob,
            rank,
            None if tokenizer is None else token_string(tokenizer, token_id, previous),
        )
        for token_id, logprob, rank in position
    }


def decode_prompt(
    pieces: Iterable[LogprobColumns], tokenizer: Tokenizer | None, prompt_token_ids: list[int]
) -> list[dict[int, Logprob] | None]:
    """Pieces of a prompt's logprobs, in order, to one entry a prompt token: None for the first,
    which nothing predicts."""
    result: list[dict[int, Logprob] | None] = []
    for reader in map(LogprobReader, pieces):
        for index in range(len(reader)):
            at = len(result)
            position = reader.position(index)
            previous = prompt_token_ids[max(0, at - NUM_CONTEXT) : at]
            result.append(decode_position(position, tokenizer, previous) if position else None)
    return result
