"""A small byte-level tokenizer for scripted models: a token a byte, and one a piece."""

from __future__ import annotations

from pathlib import Path

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

__all__ = ["EOS", "PIECES", "PieceEncoder", "save_tokenizer"]

EOS = 2
PIECES = (
    *("DEF", "HI", "abc", "tail", "...", "stop!", "cat"),
    *("\u0301", "\u200d", "\u4f60", "\u597d", "\U0001f600"),
    *("\U0001f468", "\U0001f469", "\U0001f1e9", "\U0001f1ea"),
)


def _byte_level() -> pre_tokenizers.ByteLevel:
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)


def save_tokenizer(directory: Path, chat_template: str | None = None) -> None:
    """Write its files. It has fewer than 400 tokens; a control character (BEL) has none."""
    byte_level = _byte_level()
    vocabulary = ["<pad>", "<bos>", "<eos>", *sorted(byte_level.alphabet())]
    merges: list[tuple[str, str]] = []
    for piece in PIECES:
        (written, _), *_ = byte_level.pre_tokenize_str(piece)
        for end in range(1, len(written)):
            pair = (written[:end], written[end])
            if pair not in merges:
                merges.append(pair)
                vocabulary.append("".join(pair))
    backend = Tokenizer(models.BPE({piece: i for i, piece in enumerate(vocabulary)}, merges))
    backend.normalizer = normalizers.Replace("\u0007", "")
    backend.pre_tokenizer = byte_level
    backend.decoder = decoders.ByteLevel()
    PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token="<pad>",
        bos_token="<bos>",
        eos_token="<eos>",
        chat_template=chat_template,
    ).save_pretrained(directory)


class PieceEncoder:
    """Token ids of pieces of text, each encoded on its own; of bytes one token a byte."""

    def __init__(self, directory: Path) -> None:
        self._backend = Tokenizer.from_file(str(directory / "tokenizer.json"))
        self._vocabulary = self._backend.get_vocab()
        self._byte_level = _byte_level()

    def __call__(self, *pieces: str | bytes) -> list[int]:
        found: list[int] = []
        for piece in pieces:
            if isinstance(piece, str):
                found += self._backend.encode(piece).ids
                continue
            ((written, _),) = self._byte_level.pre_tokenize_str(piece.decode())
            found += [self._vocabulary[char] for char in written]
        return found
