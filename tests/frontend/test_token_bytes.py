"""The bytes of tokens: joined they are the text that was encoded."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Backend
from transformers import PreTrainedTokenizerFast

from framework.frontend.tokenizer import Tokenizer

UNICODE = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
SPACE = "\u2581"


def wrapped(backend: Backend) -> Tokenizer:
    return Tokenizer(PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<eos>"))


def byte_level() -> Tokenizer:
    """As GPT-2, with a few merges and added tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    pieces = ["<eos>", *alphabet, "th", "the", "\u00c3\u00a9"]
    merges = [("t", "h"), ("th", "e"), ("\u00c3", "\u00a9")]
    backend = Backend(models.BPE({piece: i for i, piece in enumerate(pieces)}, merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(["<eos>", "<caf\u00e9>"])
    backend.add_tokens([AddedToken("na\u00efve", normalized=False)])
    return wrapped(backend)


def sentencepiece(*, metaspace: bool) -> Tokenizer:
    """As Llama 2, or with the decoder Metaspace: spaces as U+2581, bytes for what it lacks."""
    pieces = ["<eos>", "<unk>", *(f"<0x{byte:02X}>" for byte in range(256))]
    pieces += [SPACE, "a", "b", "c", "ab", f"{SPACE}ab", "\u4f60"]
    backend = Backend(
        models.BPE(
            {piece: i for i, piece in enumerate(pieces)},
            [("a", "b"), (SPACE, "ab")],
            unk_token="<unk>",
            byte_fallback=True,
            fuse_unk=True,
        )
    )
    backend.normalizer = normalizers.Replace(" ", SPACE)
    first = decoders.Metaspace() if metaspace else decoders.Replace(SPACE, " ")
    backend.decoder = decoders.Sequence([first, decoders.ByteFallback(), decoders.Fuse()])
    backend.add_special_tokens(["<eos>"])
    return wrapped(backend)


TOKENIZERS = {
    "byte level": byte_level(),
    "replace": sentencepiece(metaspace=False),
    "metaspace": sentencepiece(metaspace=True),
}


def joined(tokenizer: Tokenizer, text: str) -> bytes:
    ids = tokenizer.encode(text, add_special_tokens=False)
    return b"".join(map(tokenizer.token_bytes, ids))


@pytest.mark.parametrize("tokenizer", TOKENIZERS.values(), ids=TOKENIZERS)
@given(text=UNICODE)
def test_the_bytes_of_an_encoding_are_those_of_the_text(tokenizer: Tokenizer, text: str) -> None:
    if SPACE not in text:  # which these vocabularies do not tell from a space
        assert joined(tokenizer, text) == text.encode()


@pytest.mark.parametrize("tokenizer", TOKENIZERS.values(), ids=TOKENIZERS)
def test_special_tokens_are_their_text(tokenizer: Tokenizer) -> None:
    assert tokenizer.token_bytes(tokenizer.pretrained.eos_token_id) == b"<eos>"
    assert joined(tokenizer, "ab<eos> c") == b"ab<eos> c"
    assert tokenizer.token_bytes(10**6) == b""


def test_added_tokens_of_a_byte_level_vocabulary_are_text() -> None:
    """Their characters are no stand-ins of bytes."""
    tokenizer = TOKENIZERS["byte level"]
    for text in ("<caf\u00e9>", "na\u00efve"):
        (token_id,) = tokenizer.encode(text, add_special_tokens=False)
        assert tokenizer.token_bytes(token_id) == text.encode()


def test_bytes_of_a_part_of_a_character() -> None:
    for tokenizer in TOKENIZERS.values():
        ids = tokenizer.encode("\U0001f600", add_special_tokens=False)
        assert [tokenizer.token_bytes(token_id) for token_id in ids] == [
            bytes([byte]) for byte in "\U0001f600".encode()
        ]


def test_a_byte_token_without_fallback_is_text() -> None:
    backend = Backend(models.WordLevel({"<0x41>": 0, f"{SPACE}a": 1, "<eos>": 2}, "<eos>"))
    tokenizer = wrapped(backend)
    assert tokenizer.token_bytes(0) == b"<0x41>"
    assert tokenizer.token_bytes(1) == f"{SPACE}a".encode()
