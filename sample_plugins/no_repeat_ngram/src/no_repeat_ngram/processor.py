"""The processor: which tokens would complete an n-gram that is there already."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from hookspecs.contracts.logits import LogitsProcessor, LogitsProcessorContext

if TYPE_CHECKING:
    import torch

    from no_repeat_ngram.options import NoRepeatNgram

__all__ = ["NoRepeatNgramProcessor"]


class NoRepeatNgramProcessor(LogitsProcessor):
    """Paulus, Xiong, Socher, "A Deep Reinforced Model for Abstractive Summarization" (2017),
    section 2.5, for n-grams of any size and without a beam.

    A token costs O(size), whatever the length of the text: of each beginning of n - 1 tokens it
    is kept which tokens came after it.
    """

    def __init__(self, context: LogitsProcessorContext) -> None:
        super().__init__(context)
        self._options: NoRepeatNgram = context.request_options
        self._seen: dict[tuple[int, ...], set[int]] = {}
        """The first n - 1 tokens of each n-gram of the text, to those that came last in one."""
        self._last: deque[int] = deque(maxlen=self._options.size - 1)
        """The last n - 1 tokens of the text, or all as long as there are fewer."""

    def start(self, prompt: Sequence[int], generated: Sequence[int]) -> None:
        """The same as a text that is accepted token by token."""
        for token in prompt if self._options.include_prompt else ():
            self.accept(token)
        for token in generated:
            self.accept(token)

    def mask(self, logits: torch.Tensor) -> torch.Tensor:
        """Sets the logits of forbidden tokens to -inf, in place."""
        forbidden = self._seen.get(tuple(self._last))
        if forbidden:
            logits[list(forbidden)] = -float("inf")
        return logits

    def accept(self, token: int) -> None:
        """The n-gram that ends with this token, if there are n tokens, occurs from now on."""
        beginning = tuple(self._last)
        if len(beginning) == self._options.size - 1:
            self._seen.setdefault(beginning, set()).add(token)
        self._last.append(token)
