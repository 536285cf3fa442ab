"""Text decoders: whatever the calls are cut into, the text is that of the tokenizer."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as Backend
from transformers import PreTrainedTokenizerFast

from framework.frontend.byte_level import ByteLevelDecoder
from framework.frontend.decode_stream import StreamDecoder
from framework.frontend.text_decoder import TextDecoder, text_decoder
from framework.frontend.tokenizer import Tokenizer

ADDED = ["<tool>", "caf\u00e9", "\u4f60\u597d", " spaced ", "\u0120", "\u0143 x"]
"""Added tokens are text, but characters of the byte alphabet in them are read as bytes."""


@pytest.fixture(scope="module")
def with_added() -> Tokenizer:
    """Byte-level, one token a byte, with added tokens, of which some are special."""
    vocab = {char: index for index, char in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    backend = Backend(models.BPE(vocab=vocab, merges=[]))
    backend.decoder = decoders.Sequence([decoders.ByteLevel()])
    backend.add_tokens(ADDED)
    backend.add_special_tokens([AddedToken("<|end|>", special=True), AddedToken(" <|x|> ")])
    return Tokenizer(PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|end|>"))


def pushed(decoder: TextDecoder, ids: Sequence[int], cuts: Sequence[int]) -> str:
    """The text of `ids`, cut at these places into calls."""
    places = [0, *sorted(min(cut, len(ids)) for cut in cuts), len(ids)]
    calls = itertools.pairwise(places)
    return "".join(decoder.push_many(ids[start:end]) for start, end in calls) + decoder.flush()


CUTS = st.lists(st.integers(0, 40), max_size=20)


@given(data=st.data(), cuts=CUTS, skip=st.booleans())
@settings(deadline=None)
def test_byte_level_text_is_the_decode(
    with_added: Tokenizer, byte_level: Tokenizer, data: st.DataObject, cuts: list[int], skip: bool
) -> None:
    for tokenizer in (with_added, byte_level):
        # Also ids without a token: the model's vocabulary may be wider.
        tokens = st.integers(0, tokenizer.vocab_size + 3)
        ids = data.draw(st.lists(tokens, max_size=40))
        decoder = text_decoder(tokenizer, [5, 6], skip_special_tokens=skip)
        assert isinstance(decoder, ByteLevelDecoder)
        assert pushed(decoder, ids, cuts) == tokenizer.decode(ids, skip_special_tokens=skip)


@given(data=st.data(), cuts=CUTS, skip=st.booleans(), spaces=st.booleans())
@settings(deadline=None, max_examples=50)
def test_both_decoders_agree(
    with_added: Tokenizer, data: st.DataObject, cuts: list[int], skip: bool, spaces: bool
) -> None:
    """Of whole characters: what follows a broken one the stream may give in another call."""
    ids = with_added.encode(data.draw(st.text(max_size=20)), add_special_tokens=False)
    specials = with_added.encode("<|end|> <|x|>  <|x|> <|end|>")
    ids = [*specials, *ids, *specials]
    options = {"skip_special_tokens": skip, "spaces_between_special_tokens": spaces}
    stream = StreamDecoder(with_added, [], **options)
    assert pushed(text_decoder(with_added, [], **options), ids, cuts) == pushed(stream, ids, cuts)


@given(data=st.data(), cuts=CUTS)
@settings(deadline=None, max_examples=50)
def test_streamed_text_does_not_depend_on_the_cuts(
    byte_fallback: Tokenizer, data: st.DataObject, cuts: list[int]
) -> None:
    ids = data.draw(st.lists(st.integers(0, byte_fallback.vocab_size - 1), max_size=40))
    decoders_: list[Any] = [text_decoder(byte_fallback, [261]) for _ in range(2)]
    assert all(isinstance(each, StreamDecoder) for each in decoders_)
    one_by_one = pushed(decoders_[0], ids, range(len(ids)))
    assert pushed(decoders_[1], ids, cuts) == one_by_one


def test_other_decoders_are_not_taken_for_byte_level() -> None:
    backend = Backend(models.WordLevel({"a": 0}, unk_token="a"))
    for decoder in (None, decoders.Sequence([decoders.ByteLevel(), decoders.Fuse()])):
        if decoder is not None:
            backend.decoder = decoder
        tokenizer = Tokenizer(PreTrainedTokenizerFast(tokenizer_object=backend))
        assert isinstance(text_decoder(tokenizer, []), StreamDecoder)
