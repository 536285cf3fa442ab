"""Bad words of several tokens: which token would complete one now.

Knuth, Morris, Pratt, "Fast Pattern Matching in Strings" (SIAM J. Comput. 6, 1977), for all words of
a request at once: of each word but its last token, how much of it the output ends with. A token
moves these numbers on, without a look back at the output.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hookspecs.types.columns import Int32Column, Int64Column

__all__ = ["BadWords"]

_NO_TOKEN = -1
"""After each pattern: equal to no token."""


class BadWords:
    """Words of at least two tokens, all ids within the vocabulary, and the output so far.

    A pattern is a word without its last token. Building takes time and memory linear in all
    words together; a token costs array operations over the words, O(log longest word) of them.
    """

    def __init__(self, words: Sequence[Sequence[int]], outputs: Sequence[int]) -> None:
        # Longest first, so that those that reach a position are the first so many.
        words = sorted(words, key=len, reverse=True)
        self._lengths = np.array([len(word) - 1 for word in words], dtype=np.int64)
        self._tokens = np.concatenate([np.array(word, dtype=np.int32) for word in words])
        ends = np.cumsum(self._lengths + 1) - 1
        self._begins = ends - self._lengths
        self._last = self._tokens[ends].astype(np.int64)
        self._tokens[ends] = _NO_TOKEN
        self._matched = np.zeros(len(words), dtype=np.int64)
        self._fallback = self._fallbacks()
        for token in outputs[-int(self._lengths[0]) :]:
            self.accept(token)

    def accept(self, token: int) -> None:
        """The next output token."""
        self._matched = self._advance(self._matched, np.int32(token))

    def completing(self) -> Int64Column:
        """The tokens that would complete a word; may repeat."""
        complete: Int64Column = self._last[self._matched == self._lengths]
        return complete

    def _advance(
        self, matched: Int64Column, tokens: Int32Column | np.int32, first: int | None = None
    ) -> Int64Column:
        """The longest beginning of each of the `first` patterns (None: all) that matches after
        `matched` tokens did and then one of `tokens` came."""
        matched = matched[:first].copy()
        wanted = np.broadcast_to(tokens, matched.shape)
        left = np.arange(len(matched))
        while len(left):
            at = self._begins[left] + matched[left]
            wrong = self._tokens[at] != wanted[left]
            left = left[wrong]
            matched[left] = self._fallback[at[wrong]]
            left = left[matched[left] >= 0]
        return matched + 1

    def _fallbacks(self) -> Int32Column:
        """For each place of a pattern: how much still matches when its token is not the one that
        came, -1 for nothing. It is the longest end of what matched that is also a beginning, and
        that another token follows."""
        fallback = self._fallback = np.full(len(self._tokens), -1, dtype=np.int32)
        borders = np.zeros(len(self._lengths), dtype=np.int64)
        """How much of each pattern its own part before `place` ends with, itself excepted."""
        for place in range(1, int(self._lengths[0]) + 1):
            count = int(np.searchsorted(-self._lengths, -place, side="right"))
            at, begins = self._begins[:count] + place, self._begins[:count]
            borders = borders[:count]
            tokens = self._tokens[at]
            same = tokens == self._tokens[begins + borders]
            fallback[at] = np.where(same, fallback[begins + borders], borders)
            borders = self._advance(borders, tokens, count)
        return fallback
