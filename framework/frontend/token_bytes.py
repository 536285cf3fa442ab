"""The exact bytes that a token stands for, which may be part of a character."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, Final

__all__ = ["TokenBytes", "byte_reader", "is_byte_level"]

_FALLBACK: Final = re.compile(r"<0x([0-9A-Fa-f]{2})>")


class TokenBytes(dict[int, bytes]):
    """Token id to what the `ByteLevel` decoder makes of the token, worked out when first asked
    for: the bytes that its characters stand for, or, if one stands for none, those of its text.
    Of an id without a token, and of a hidden one, nothing."""

    def __init__(self, backend: Any, hidden: frozenset[int]) -> None:
        """`backend`: a `tokenizers.Tokenizer` that `is_byte_level`."""
        super().__init__()
        self._backend = backend
        self._hidden = hidden
        self._alphabet = _byte_level_alphabet()

    def __missing__(self, token_id: int) -> bytes:
        token: str | None = self._backend.id_to_token(token_id)
        if token is None or token_id in self._hidden:
            token = ""
        try:
            data = bytes([self._alphabet[char] for char in token])
        except KeyError:
            data = token.encode()
        self[token_id] = data
        return data


def is_byte_level(backend: Any) -> bool:
    """Whether the decoder of a `tokenizers.Tokenizer` is `ByteLevel` and nothing else."""
    return [step["type"] for step in _decoder_steps(backend)] == ["ByteLevel"]


def byte_reader(backend: Any) -> Callable[[str], bytes]:
    """From a token as the vocabulary of a `tokenizers.Tokenizer` writes it to its bytes, by what
    the tokenizer's decoder does to each token. Not for added tokens, which are written as text.

    Byte-level vocabularies write each byte as one printable character (Radford et al., Language
    Models are Unsupervised Multitask Learners, 2019); others write text, with another character
    for a space, and `<0x..>` for the bytes of what they lack (Kudo and Richardson, SentencePiece,
    2018).
    """
    steps = _decoder_steps(backend)
    kinds = {str(step["type"]) for step in steps}
    if "ByteLevel" in kinds:
        alphabet = _byte_level_alphabet()
        return lambda token: b"".join(
            bytes([alphabet[char]]) if char in alphabet else char.encode() for char in token
        )
    replaced = [(str(step["replacement"]), " ") for step in steps if step["type"] == "Metaspace"]
    replaced += [
        (step["pattern"]["String"], step["content"])
        for step in steps
        if step["type"] == "Replace" and "String" in step["pattern"]
    ]

    def read(token: str) -> bytes:
        match = _FALLBACK.fullmatch(token) if "ByteFallback" in kinds else None
        if match is not None:
            return bytes([int(match[1], 16)])
        for written, text in replaced:
            token = token.replace(written, text)
        return token.encode()

    return read


def _decoder_steps(backend: Any) -> list[dict[str, Any]]:
    """What the decoder is made of, in order. Its pickled state is JSON; the whole tokenizer's
    would hold the vocabulary, too."""
    if backend.decoder is None:
        return []
    decoder: dict[str, Any] = json.loads(backend.decoder.__getstate__())
    return list(decoder["decoders"]) if decoder["type"] == "Sequence" else [decoder]


def _byte_level_alphabet() -> dict[str, int]:
    """Character to byte: printable Latin-1 characters stand for themselves, the other bytes for
    the characters from U+0100 on, in order."""
    own = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in own]
    alphabet = {chr(byte): byte for byte in own}
    alphabet.update((chr(0x100 + place), byte) for place, byte in enumerate(others))
    return alphabet
