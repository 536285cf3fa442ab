"""How text is split before byte pair encoding, by the name in `tokenizer.ggml.pre`.

The patterns are those of the tokenizer.json files that the models were published with. A name
that is not listed here is refused: a similar rule would give other tokens for some texts.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["RULES", "SplitRule"]


@dataclass(frozen=True)
class SplitRule:
    """One way to split.

    `pattern` is a regular expression whose matches are the pieces; None means the pattern of
    GPT-2. `single_digits`: every digit is a piece first. `nfc`: text is normalized to Unicode
    NFC. `ignore_merges`: a piece that is in the vocabulary is taken whole. `add_bos`: whether
    a text begins with the BOS token when the file does not say.
    """

    pattern: str | None = None
    single_digits: bool = False
    nfc: bool = False
    ignore_merges: bool = False
    add_bos: bool = False


_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_WORD = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_PUNCTUATION = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
_SPACE = r"\s*[\r\n]+|\s+(?!\S)|\s+"

_LLAMA3 = SplitRule(
    pattern=rf"{_CONTRACTIONS}|{_WORD}|\p{{N}}{{1,3}}|{_PUNCTUATION}|{_SPACE}",
    ignore_merges=True,
    add_bos=True,
)
_QWEN2 = SplitRule(
    pattern=rf"{_CONTRACTIONS}|{_WORD}|\p{{N}}|{_PUNCTUATION}|{_SPACE}",
    nfc=True,
)

RULES = {
    "gpt-2": SplitRule(),
    "smollm": SplitRule(single_digits=True),
    "llama-bpe": _LLAMA3,
    "llama-v3": _LLAMA3,
    "llama3": _LLAMA3,
    "qwen2": _QWEN2,
}
