"""`ByteLevelDecoder`: tokens to text for tokenizers whose vocabulary is written in bytes.

Their decoder (`ByteLevel` of the `tokenizers` library) makes bytes of each token on its own and
reads all of them as UTF-8, with U+FFFD for each maximal part that is none (The Unicode Standard,
section 3.9, "U+FFFD Substitution of Maximal Subparts"). So a table of each token's bytes and an
incremental UTF-8 decoder give the same text, for the price of a join.
"""

from __future__ import annotations

from codecs import utf_8_decode
from collections.abc import Sequence

from framework.frontend.token_bytes import TokenBytes

__all__ = ["ByteLevelDecoder"]


class ByteLevelDecoder:
    """Text of one request's output tokens; a `framework.frontend.text_decoder.TextDecoder`. One
    thread."""

    __slots__ = ("_after_special", "_joined_ids", "_pending", "_table")

    def __init__(self, table: TokenBytes, joined_ids: frozenset[int]) -> None:
        """`joined_ids`: special tokens, of which one that follows another loses its leading
        spaces."""
        self._table = table
        self._joined_ids = joined_ids
        self._after_special = False
        self._pending = b""
        """Bytes of a character that is not whole yet."""

    def push_many(self, ids: Sequence[int]) -> str:
        """See `TextDecoder`. The prompt's end does not matter: bytes need no context."""
        table = self._table
        data = (
            b"".join([table[token_id] for token_id in ids])
            if not self._joined_ids
            else (self._without_spaces(ids))
        )
        if self._pending:
            data = self._pending + data
        text, used = utf_8_decode(data, "replace", False)
        self._pending = data[used:]
        return text

    def flush(self) -> str:
        """See `TextDecoder`."""
        text, self._pending = self._pending.decode(errors="replace"), b""
        return text

    def _without_spaces(self, ids: Sequence[int]) -> bytes:
        parts = []
        for token_id in ids:
            part = self._table[token_id]
            special = token_id in self._joined_ids
            parts.append(part.lstrip(b" ") if special and self._after_special else part)
            self._after_special = special
        return b"".join(parts)
