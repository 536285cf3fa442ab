"""The model: how often each token follows each context in a text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from hookspecs.types.columns import Int32Column

from ngram_runner.text_tokenizer import END_ID

__all__ = ["NgramCounts"]

Context = tuple[int, ...]


class NgramCounts:
    """Counts of n-grams of 1 to `order` tokens. None reaches over the end of a document.

    There is no smoothing: what the longest known context says is taken as it is. Shorter ones,
    of which each is the end of the one before, matter where it is unknown, or where none of its
    tokens may be chosen (back-off without discounts; Katz, 1987, has them).
    """

    def __init__(self, tokens: Int32Column, order: int) -> None:
        """`tokens`: int32[tokens], the end token after each document."""
        self.order = order
        self._counts: dict[Context, dict[int, int]] = {}
        start, ids = 0, tokens.tolist()
        for at, token in enumerate(ids):
            for length in range(min(order - 1, at - start) + 1):
                following = self._counts.setdefault(tuple(ids[at - length : at]), {})
                following[token] = following.get(token, 0) + 1
            if token == END_ID:
                start = at + 1

    @property
    def num_contexts(self) -> int:
        """Number of different contexts, the empty one included."""
        return len(self._counts)

    def following(self, tokens: Sequence[int]) -> Iterator[Mapping[int, int]]:
        """Token to count, after the longest known context at the end of `tokens` and then after
        each shorter one, down to the empty context, which follows every text."""
        for length in range(min(self.order - 1, len(tokens)), -1, -1):
            found = self._counts.get(tuple(tokens[len(tokens) - length :]))
            if found is not None:
                yield found
