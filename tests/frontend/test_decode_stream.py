"""Incremental decoding: joined pieces are the full decode, characters come once and whole."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from framework.frontend.text_decoder import text_decoder
from framework.frontend.tokenizer import Tokenizer, load_tokenizer
from hookspecs.config import ModelConfig
from hookspecs.contracts.model import ModelInfo, ResolvedModel
from hookspecs.errors import ModelNotFoundError, UnsupportedModelError


def pieces(
    tokenizer: Tokenizer,
    ids: list[int],
    prompt: Sequence[int] = (),
    *,
    skip_special_tokens: bool = True,
    spaces_between_special_tokens: bool = True,
) -> list[str]:
    decoder = text_decoder(
        tokenizer,
        prompt,
        skip_special_tokens=skip_special_tokens,
        spaces_between_special_tokens=spaces_between_special_tokens,
    )
    return [*(decoder.push_many([token_id]) for token_id in ids), decoder.flush()]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\U0001f600", ["", "", "", "\U0001f600", ""]),
        ("a\u4f60b", ["a", "", "", "\u4f60", "b", ""]),
        ("e\u0301", ["e", "", "\u0301", ""]),
    ],
)
def test_nothing_until_a_character_is_complete(
    byte_level: Tokenizer, bytes_of: Callable[[str], list[int]], text: str, expected: list[str]
) -> None:
    assert pieces(byte_level, bytes_of(text)) == expected


@pytest.mark.parametrize(
    "text",
    [
        "e\u0301 cafe\u0301",
        "\U0001f1eb\U0001f1f7",
        "\U0001f468\u200d\U0001f469\u200d\U0001f467",
        "  leading and   inner",
        "\u4f60\u597d, na\u00efve",
        "\n\n\t x",
        "real \ufffd replacement \ufffd",
    ],
)
def test_joined_pieces_are_the_text(byte_level: Tokenizer, text: str, bytes_of: Any) -> None:
    for ids in (byte_level.encode(text), bytes_of(text)):
        assert "".join(pieces(byte_level, ids)) == text


@given(data=st.data())
@settings(deadline=None, max_examples=150)
def test_random_tokens_join_to_the_full_decode(byte_level: Tokenizer, data: st.DataObject) -> None:
    ids = data.draw(st.lists(st.integers(0, byte_level.vocab_size - 1), max_size=60))
    skip = data.draw(st.booleans())
    prompt = byte_level.encode(data.draw(st.sampled_from(["", "hello", "\u4f60"])))
    got = "".join(pieces(byte_level, ids, prompt, skip_special_tokens=skip))
    assert got == byte_level.decode(ids, skip_special_tokens=skip)


@given(data=st.binary(max_size=80))
@settings(deadline=None, max_examples=150)
def test_random_bytes_join_to_the_full_decode(
    byte_level: Tokenizer, bytes_of: Any, data: bytes
) -> None:
    assert "".join(pieces(byte_level, bytes_of(data))) == data.decode(errors="replace")


def test_a_long_run_of_broken_bytes_is_let_go(byte_level: Tokenizer, bytes_of: Any) -> None:
    ids = bytes_of(b"\x80" * 100 + "\U0001f600".encode() + b"\x80" * 40)
    got = pieces(byte_level, ids)
    assert any(got[:30])
    assert "".join(got) == "\ufffd" * 100 + "\U0001f600" + "\ufffd" * 40


def test_hidden_special_tokens_give_nothing_and_are_not_kept(byte_level: Tokenizer) -> None:
    ids = [*byte_level.encode("fox"), *[1] * 100, *byte_level.encode(" fox")]
    assert "".join(pieces(byte_level, ids)) == "fox fox"
    shown = "".join(pieces(byte_level, ids, skip_special_tokens=False))
    assert shown == "fox" + "<bos>" * 100 + " fox"


def test_incomplete_character_at_the_end_is_shown_as_such(
    byte_level: Tokenizer, bytes_of: Any
) -> None:
    ids = bytes_of("ab" + "\U0001f600")[:-1]
    assert "".join(pieces(byte_level, ids)) == "ab\ufffd"


def test_prompt_that_ends_inside_a_character(byte_level: Tokenizer, bytes_of: Any) -> None:
    got = "".join(pieces(byte_level, bytes_of(b" ok"), prompt=bytes_of(b"abc\xf0\x9f")))
    assert got == " ok"


# Word pieces with byte fallback


def piece_ids(tokenizer: Tokenizer, *tokens: str) -> list[int]:
    return [tokenizer.backend.token_to_id(token) for token in tokens]


def test_first_output_token_keeps_its_space(byte_fallback: Tokenizer) -> None:
    hello, there = piece_ids(byte_fallback, "\u2581Hello", "\u2581there")
    assert "".join(pieces(byte_fallback, [there, hello], prompt=[hello])) == " there Hello"
    assert "".join(pieces(byte_fallback, [hello, there], prompt=[1])) == "Hello there"


def test_byte_fallback_characters(byte_fallback: Tokenizer) -> None:
    ids = piece_ids(byte_fallback, "\u2581Hello", "<0xF0>", "<0x9F>", "<0x98>", "<0x80>", "!")
    assert pieces(byte_fallback, ids, prompt=[1]) == ["Hello", "", "", "", "\U0001f600", "!", ""]


def test_decoder_error_restarts_the_stream(
    byte_fallback: Tokenizer, caplog: pytest.LogCaptureFixture
) -> None:
    """<0x41> is "A" alone, but broken together with the byte after it: what was given changes."""
    ids = piece_ids(byte_fallback, "<0x41>", "<0xFF>", "b", "c", "<0x41>", "<0xFF>", "b", "\u2581a")
    with caplog.at_level(logging.WARNING):
        got = pieces(byte_fallback, ids)
    assert "".join(got) == "A\ufffdbcA\ufffdb a"
    assert len(caplog.records) == 1


def test_one_stream_s_error_leaves_others_alone(byte_fallback: Tokenizer) -> None:
    broken = text_decoder(byte_fallback, [])
    other = text_decoder(byte_fallback, [])
    for token, expected in [("\u2581Hello", "Hello"), ("\u2581there", " there"), ("b", "b")]:
        broken.push_many(piece_ids(byte_fallback, "<0x41>"))
        broken.push_many(piece_ids(byte_fallback, "<0xFF>"))
        assert other.push_many(piece_ids(byte_fallback, token)) == expected


@given(data=st.data())
@settings(deadline=None, max_examples=150)
def test_random_pieces_lose_and_double_nothing(
    byte_fallback: Tokenizer, data: st.DataObject
) -> None:
    """Whole pieces come once each and in order, whatever bytes are between them."""
    words = {"\u2581Hello": " Hello", "ing": "ing", "b": "b", ".": "."}
    tokens = data.draw(
        st.lists(st.sampled_from([*words, "<0xFF>", "<0xC3>", "<0xA9>", "<0x41>"]), max_size=50)
    )
    got = "".join(
        pieces(
            byte_fallback, piece_ids(byte_fallback, *tokens), prompt=piece_ids(byte_fallback, "b")
        )
    )
    kept = "".join(words.get(token, "") for token in tokens)
    noise = str.maketrans("", "", "\ufffd\u00e9A")
    assert got.translate(noise) == kept


# Tokenizers without a decoder put spaces between tokens


def test_spaces_between_special_tokens() -> None:
    from tokenizers import Tokenizer as Backend
    from tokenizers import models
    from transformers import PreTrainedTokenizerFast

    backend = Backend(models.WordLevel({"<eos>": 0, "<pad>": 1, "a": 2}, unk_token="a"))
    plain = Tokenizer(
        PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<eos>", pad_token="<pad>")
    )
    ids = [2, 0, 1, 2]
    assert "".join(pieces(plain, ids, skip_special_tokens=False)) == "a <eos> <pad> a"
    joined = pieces(plain, ids, skip_special_tokens=False, spaces_between_special_tokens=False)
    assert "".join(joined) == "a <eos><pad> a"


# Loading


def resolved(path: str | None, **info: Any) -> ResolvedModel:
    return ResolvedModel(
        name="m",
        path=None,
        tokenizer_path=path,
        info=ModelInfo(architecture="x", vocab_size=420, max_model_len=8, **info),
    )


def test_load_tokenizer(byte_level: Tokenizer, tmp_path: Any) -> None:
    byte_level.pretrained.save_pretrained(tmp_path)
    path = str(tmp_path)
    loaded = load_tokenizer(ModelConfig(), resolved(path))
    assert loaded is not None
    assert loaded.encode("hello fox") == byte_level.encode("hello fox")
    assert loaded.special_ids >= {0, 1, 2}
    assert load_tokenizer(ModelConfig(), resolved(None)) is None
    # What the source decided counts; the setting is not read a second time.
    assert load_tokenizer(ModelConfig(tokenizer="~/tok"), resolved(path)) is not None
    assert load_tokenizer(ModelConfig(tokenizer=path), resolved(None)) is None


def test_load_tokenizer_errors(tmp_path: Any) -> None:
    missing = str(tmp_path / "missing")
    with pytest.raises(ModelNotFoundError, match="missing"):
        load_tokenizer(ModelConfig(), resolved(missing))
    with pytest.raises(UnsupportedModelError, match="str"):
        Tokenizer("slow")
