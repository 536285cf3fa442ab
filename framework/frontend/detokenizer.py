"""`Detokenizer`: the text of one output, with its stop strings.

One cut for everything: a stop string ends text before it (after it, if included), and ids,
logprobs and usage with the token that completed it. With stop strings tokens are taken one by
one, so steps that bring several tokens give what single steps give; without them nothing depends
on the text, and it is made of many tokens at once, when somebody gets it.
"""

from __future__ import annotations

from collections.abc import Sequence

from framework.frontend.stop_strings import StopMatcher
from framework.frontend.text_decoder import text_decoder
from framework.frontend.tokenizer import Tokenizer
from hookspecs.types.sampling import SamplingParams

__all__ = ["Detokenizer"]


class Detokenizer:
    """Text so far, and how much of it may be shown. One thread."""

    __slots__ = (
        "_decoder",
        "_finished",
        "_include_stop",
        "_matcher",
        "_min_tokens",
        "_num_tokens",
        "_text",
    )

    def __init__(
        self, tokenizer: Tokenizer, params: SamplingParams, prompt_token_ids: Sequence[int]
    ) -> None:
        """`params`: validated."""
        self._decoder = text_decoder(
            tokenizer,
            prompt_token_ids,
            skip_special_tokens=params.skip_special_tokens,
            spaces_between_special_tokens=params.spaces_between_special_tokens,
        )
        stops = [params.stop] if isinstance(params.stop, str) else params.stop
        self._matcher = StopMatcher(stops) if stops else None
        self._include_stop = params.include_stop_str_in_output
        self._min_tokens = params.min_tokens
        self._num_tokens = 0
        self._finished = False
        self._text = ""
        """What is not taken yet, also what is held back."""

    @property
    def has_stops(self) -> bool:
        """Whether a token can complete a stop string: then each is to be given to `push`."""
        return self._matcher is not None

    def push(self, token_id: int) -> str | None:
        """Take a token; the stop string that it completed, if any, after which text is final."""
        self._num_tokens += 1
        return self._append(self._decoder.push_many((token_id,)))

    def push_many(self, token_ids: Sequence[int]) -> None:
        """Take tokens where there are no stop strings."""
        self._text += self._decoder.push_many(token_ids)

    def finish(self) -> str | None:
        """The output ended for another reason: nothing is held back any more. Still returns a
        stop string if the last, incomplete character had kept one from being seen. Does nothing
        after the end."""
        if self._finished:
            return None
        stop = self._append(self._decoder.flush())
        self._finished = True
        return stop

    def shown(self) -> str:
        """The text that will stay whatever comes."""
        if self._matcher is None or self._include_stop or self._finished:
            return self._text
        return self._text[: len(self._text) - self._matcher.num_held]

    def take(self) -> str:
        """The same, which is not shown again."""
        shown = self.shown()
        self._text = self._text[len(shown) :]
        return shown

    def _append(self, piece: str) -> str | None:
        if not piece:
            return None
        before = len(self._text)
        self._text += piece
        if self._matcher is None:
            return None
        # Text of the first min_tokens tokens can begin a stop string, not complete one.
        match = self._matcher.feed(piece, armed=self._num_tokens > self._min_tokens)
        if match is None:
            return None
        end = before + match.end - (0 if self._include_stop else len(match.stop))
        self._text = self._text[:end]
        self._finished = True
        return match.stop
