"""The exact bytes that a token stands for, which may be part of a character."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, Final

__all__ = ["byte_reader"]

_FALLBACK: Final = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def byte_reader(backend: Any) -> Callable[[str], bytes]:
    """From a token as the vocabulary of a `tokenizers.Tokenizer` writes it to its bytes.

    Byte-level vocabularies write each byte as one printable character (Radford et al., Language
    Models are Unsupervised Multitask Learners, 2019); others write text, with `<0x..>` for the
    bytes of what they lack and often U+2581 for a space.
    """
    kinds = set(_decoder_kinds(json.loads(backend.to_str()).get("decoder")))
    if "ByteLevel" in kinds:
        alphabet = _byte_level_alphabet()
        return lambda token: b"".join(
            bytes([alphabet[char]]) if char in alphabet else char.encode() for char in token
        )

    def read(token: str) -> bytes:
        match = _FALLBACK.fullmatch(token)
        if match is not None and "ByteFallback" in kinds:
            return bytes([int(match[1], 16)])
        return token.replace("\u2581", " ").encode()

    return read


def _decoder_kinds(decoder: dict[str, Any] | None) -> list[str]:
    if decoder is None:
        return []
    inner = decoder.get("decoders", ())
    return [str(decoder["type"]), *(kind for each in inner for kind in _decoder_kinds(each))]


def _byte_level_alphabet() -> dict[str, int]:
    """Character to byte: printable Latin-1 characters stand for themselves, the other bytes for
    the characters from U+0100 on, in order."""
    own = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in own]
    alphabet = {chr(byte): byte for byte in own}
    alphabet.update((chr(0x100 + place), byte) for place, byte in enumerate(others))
    return alphabet
