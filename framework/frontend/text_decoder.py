"""`TextDecoder`: tokens to text as they come, each character once and whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from framework.frontend.byte_level import ByteLevelDecoder
from framework.frontend.decode_stream import StreamDecoder
from framework.frontend.tokenizer import Tokenizer

__all__ = ["TextDecoder", "text_decoder"]


class TextDecoder(Protocol):
    """Of one request's output tokens. What it gives, joined, does not depend on how the tokens
    are cut into calls."""

    def push_many(self, ids: Sequence[int]) -> str:
        """The text that these tokens complete; "" while a character is incomplete."""

    def flush(self) -> str:
        """The rest, at the end: an incomplete character as U+FFFD. `push_many` may go on after
        it."""


def text_decoder(
    tokenizer: Tokenizer,
    prompt_token_ids: Sequence[int],
    *,
    skip_special_tokens: bool = True,
    spaces_between_special_tokens: bool = True,
) -> TextDecoder:
    """The cheapest that is exact for this tokenizer."""
    table = tokenizer.byte_table(skip_special_tokens=skip_special_tokens)
    if table is not None:
        joined = frozenset[int]() if spaces_between_special_tokens else tokenizer.special_ids
        return ByteLevelDecoder(table, joined)
    return StreamDecoder(
        tokenizer,
        prompt_token_ids,
        skip_special_tokens=skip_special_tokens,
        spaces_between_special_tokens=spaces_between_special_tokens,
    )
