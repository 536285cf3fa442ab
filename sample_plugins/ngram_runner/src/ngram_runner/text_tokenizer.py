"""A word-level tokenizer for one text, and the text as token ids.

A token is a word or a punctuation mark. One that follows a space begins with U+2581, as in
SentencePiece (Kudo and Richardson, 2018), so that decoding gives the spaces back; several spaces
and line breaks count as one. A blank line ends a document.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

import numpy as np
from hookspecs.types.columns import Int32Column
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

__all__ = ["END", "END_ID", "UNKNOWN", "documents_of", "encode_documents", "make_tokenizer"]

END: Final = "<|endoftext|>"
END_ID: Final = 0
UNKNOWN: Final = "<unk>"
"""Stands for words of a prompt that the text lacks. The model never chooses it."""
_SPACE: Final = "\u2581"
_TOKEN: Final = rf"{_SPACE}?\w+|{_SPACE}?[^\w\s{_SPACE}]|{_SPACE}"
_BLANK_LINE: Final = re.compile(r"\n[^\S\n]*\n")


def documents_of(text: str) -> list[str]:
    """The parts between blank lines, without those that have nothing."""
    return [part for part in _BLANK_LINE.split(text) if part.strip()]


def make_tokenizer(documents: Iterable[str]) -> Tokenizer:
    """The tokenizer of these documents. Ids: the end token, the unknown one, then words by
    falling frequency, and alphabetically among equals."""
    words: Counter[str] = Counter()
    empty = _with_vocabulary({END: END_ID, UNKNOWN: 1})
    for document in documents:
        words.update(_split(empty, document))
    ranked = sorted(words, key=lambda word: (-words[word], word))
    return _with_vocabulary({word: i for i, word in enumerate((END, UNKNOWN, *ranked))})


def encode_documents(tokenizer: Tokenizer, documents: Iterable[str]) -> Int32Column:
    """int32[tokens]: all documents, each with the end token after it."""
    vocabulary = tokenizer.get_vocab()
    ids: list[int] = []
    for document in documents:
        ids += [vocabulary[word] for word in _split(tokenizer, document)]
        ids.append(END_ID)
    return np.array(ids, dtype=np.int32)


def _with_vocabulary(vocabulary: dict[str, int]) -> Tokenizer:
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=UNKNOWN))
    spaces: dict[str, Any] = {"replacement": _SPACE, "prepend_scheme": "always", "split": True}
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Strip()]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Metaspace(**spaces), pre_tokenizers.Split(Regex(_TOKEN), "isolated")]
    )
    tokenizer.decoder = decoders.Metaspace(**spaces)
    tokenizer.add_special_tokens([AddedToken(END, normalized=False, special=True)])
    return tokenizer


def _split(tokenizer: Tokenizer, document: str) -> list[str]:
    """The words of a document. Text that reads like a special token is none here."""
    normalized = tokenizer.normalizer.normalize_str(document)
    return [word for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(normalized)]
