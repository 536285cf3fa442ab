"""`StreamDecoder`: tokens to text for tokenizers of any kind, one token at a time.

Built on `tokenizers.decoders.DecodeStream`, which gives nothing until the text no longer ends
inside a character. Three things are added: the tail that is still incomplete at the end is given
then; a run of bytes that never becomes a character is let go before it gets long (each step
decodes what is held); an error of the stream restarts it for this request, with the tokens held.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Final

from tokenizers.decoders import DecodeStream

from framework.frontend.tokenizer import Tokenizer

__all__ = ["REPLACEMENT", "StreamDecoder"]

logger = logging.getLogger(__name__)

REPLACEMENT: Final = "\ufffd"
"""What stands for bytes that are no (whole) character."""
NUM_CONTEXT: Final = 6
"""Prompt tokens given to the stream, so that the first output token decodes as a continuation
(with its leading space)."""
MAX_HELD: Final = 16
"""Tokens without text after which the stream is cut; a character has at most 4 bytes."""


class StreamDecoder:
    """Text of one request's output tokens; a `framework.frontend.text_decoder.TextDecoder`. One
    thread."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        prompt_token_ids: Sequence[int],
        *,
        skip_special_tokens: bool = True,
        spaces_between_special_tokens: bool = True,
    ) -> None:
        self._tokenizer = tokenizer
        self._skip_special = skip_special_tokens
        self._join_special = not spaces_between_special_tokens
        self._last_special = False
        self._recovered = False
        self._held: list[int] = []
        self._max_held = MAX_HELD
        context = list(prompt_token_ids[-NUM_CONTEXT:])
        # A prompt that ends inside a character can not be continued by the stream: it would
        # give the prompt's text again.
        if self._decode(context).endswith(REPLACEMENT):
            context = []
        self._context: list[int] = context
        """The tokens whose text was given last; those held are decoded after them."""
        self._stream: Any = self._new_stream(context)

    def push_many(self, ids: Sequence[int]) -> str:
        """See `TextDecoder`."""
        return "".join([self._push(token_id) for token_id in ids])

    def _push(self, token_id: int) -> str:
        self._held.append(token_id)
        try:
            text: str | None = self._stream.step(self._tokenizer.backend, token_id)
        except Exception as error:  # The library raises plain Exception.
            text = self._recover(error)
        if text is None:
            if len(self._held) < self._max_held:
                return ""
            text = self._let_go()
        else:
            self._give_held()
        if self._join_special:
            special = token_id in self._tokenizer.special_ids
            if special and self._last_special:
                text = text.lstrip(" ")
            self._last_special = special
        return text

    def flush(self) -> str:
        """See `TextDecoder`."""
        text = self._text_of(self._held)
        self._give_held()
        self._stream = self._new_stream(self._context)
        return text

    def _decode(self, ids: Sequence[int]) -> str:
        return self._tokenizer.decode(ids, skip_special_tokens=self._skip_special)

    def _new_stream(self, context: list[int]) -> Any:
        return DecodeStream(ids=context, skip_special_tokens=self._skip_special)

    def _give_held(self) -> None:
        self._context, self._held = self._held, []
        self._max_held = MAX_HELD

    def _text_of(self, ids: list[int]) -> str:
        """Text of `ids` after the context."""
        before, both = self._decode(self._context), self._decode(self._context + ids)
        return both[len(before) :] if both.startswith(before) else self._decode(ids)

    def _recover(self, error: Exception) -> str | None:
        """Decode the held tokens on their own: what was given stays as it is."""
        if not self._recovered:
            self._recovered = True
            logger.warning("the decoder of one request was restarted: %s", error)
        self._context = []
        return self._restart(self._held)

    def _restart(self, ids: list[int]) -> str | None:
        """A new stream without history that takes `ids`; the text it gives, if any."""
        self._stream = self._new_stream([])
        steps = [self._stream.step(self._tokenizer.backend, token_id) for token_id in ids]
        texts = [text for text in steps if text is not None]
        return "".join(texts) if texts else None

    def _let_go(self) -> str:
        """Give the longest head of the held tokens whose text can not change any more.

        Where head and tail decode to the same text apart as together, no character spans the
        cut: what follows can only add to a tail that has at least one byte.
        """
        held = self._held
        whole = self._decode(held)
        if not whole:  # Special tokens that are not shown.
            self._held = []
            self._stream = self._new_stream(self._context)
            return ""
        for cut in range(len(held) - 1, 0, -1):
            tail = self._decode(held[cut:])
            if tail and self._decode(held[:cut]) + tail == whole:
                text = self._text_of(held[:cut])
                self._context, self._held = [], held[cut:]
                self._max_held = MAX_HELD
                return text + (self._restart(self._held) or "")
        self._max_held = 2 * len(held)
        return ""
