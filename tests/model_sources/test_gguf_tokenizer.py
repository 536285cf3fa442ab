"""Tokenizers built from the metadata of GGUF files."""

from __future__ import annotations

import json

import pytest
from tokenizers import Tokenizer

from builtin_plugins.model_sources.gguf_file import GgufFile
from builtin_plugins.model_sources.gguf_tokenizer import write_tokenizer
from builtin_plugins.model_sources.tokenizer_rules import RULES
from hookspecs.errors import UnsupportedModelError

TEXTS = [
    "plain text",
    "  spaces   and\ttabs \n\n\r\n end ",
    "don't WE'LL",
    "naïve façade 日本語 текст",
    "😀👩‍👩‍👧 \u200b",
    "1234567890 ½ \uff11\uff12",
    "a<bos>b<tool>c",
    "",
]


def build(tiny, tmp_path, **changes) -> Tokenizer:
    """The tokenizer of `tiny` with changed metadata below tokenizer.ggml."""
    for key, value in changes.items():
        tiny.metadata[f"tokenizer.ggml.{key}"] = value
    write_tokenizer(GgufFile(tiny.write(tmp_path / "tiny.gguf")), tmp_path)
    return Tokenizer.from_file(str(tmp_path / "tokenizer.json"))


@pytest.mark.parametrize("pre", sorted(RULES))
def test_decoding_reverses_encoding(tiny, tmp_path, pre):
    tokenizer = build(tiny, tmp_path, pre=pre)
    for text in TEXTS:
        tokens = tokenizer.encode(text, add_special_tokens=False).ids
        assert tokenizer.decode(tokens, skip_special_tokens=False) == text


@pytest.mark.parametrize(
    ("pre", "pieces"),
    [
        ("gpt-2", ["ab", "'s", "Ġ12345", "ĠĠ", "Ġx", "!?", "Ċ"]),
        ("smollm", ["ab", "'s", "Ġ", "1", "2", "3", "4", "5", "ĠĠ", "Ġx", "!?", "Ċ"]),
        ("llama-bpe", ["ab", "'s", "Ġ", "123", "45", "ĠĠ", "Ġx", "!?Ċ"]),
        ("qwen2", ["ab", "'s", "Ġ", "1", "2", "3", "4", "5", "ĠĠ", "Ġx", "!?Ċ"]),
    ],
)
def test_how_text_is_split(tiny, tmp_path, pre, pieces):
    tokenizer = build(tiny, tmp_path, pre=pre)
    found = tokenizer.pre_tokenizer.pre_tokenize_str("ab's 12345   x!?\n")
    assert [piece for piece, _ in found] == pieces


def test_capital_contractions(tiny, tmp_path):
    tokenizer = build(tiny, tmp_path, pre="qwen2")
    found = tokenizer.pre_tokenizer.pre_tokenize_str("WE'LL")
    assert [piece for piece, _ in found] == ["WE", "'LL"]


def test_qwen2_normalizes(tiny, tmp_path):
    tokenizer = build(tiny, tmp_path, pre="qwen2")
    assert tokenizer.decode(tokenizer.encode("e\u0301").ids) == "\u00e9"


def test_merges(tiny, tmp_path):
    assert build(tiny, tmp_path, pre="gpt-2").encode("hell12").tokens == ["hell", "12"]


def test_control_tokens_are_special_and_unused_ones_left_out(tiny, tmp_path):
    tokenizer = build(tiny, tmp_path)
    added = {t.content: t.special for t in tokenizer.get_added_tokens_decoder().values()}
    assert added == {"<bos>": True, "<eos>": True, "<tool>": False}
    assert tokenizer.get_vocab_size() == 263
    assert tokenizer.encode("<eos>a<tool>").ids[0] == 1
    assert tokenizer.decode([0, 1, 262]) == "<tool>"


@pytest.mark.parametrize(
    ("changes", "tokens"),
    [
        ({"pre": "smollm"}, ["a"]),
        ({"pre": "smollm", "add_bos_token": True}, ["<bos>", "a"]),
        ({"pre": "llama-bpe"}, ["<bos>", "a"]),
        ({"pre": "llama-bpe", "add_bos_token": False}, ["a"]),
        ({"pre": "smollm", "add_eos_token": True}, ["a", "<eos>"]),
        (
            {"pre": "smollm", "add_bos_token": True, "add_eos_token": True, "eos_token_id": 0},
            ["<bos>", "a", "<bos>"],
        ),
    ],
)
def test_tokens_around_a_text(tiny, tmp_path, changes, tokens):
    assert build(tiny, tmp_path, **changes).encode("a").tokens == tokens


def test_tokenizer_config(tiny, tmp_path):
    build(tiny, tmp_path)
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    template = tiny.metadata["tokenizer.chat_template"]
    assert config["chat_template"] == template
    assert (tmp_path / "chat_template.jinja").read_text() == template
    assert (config["bos_token"], config["eos_token"]) == ("<bos>", "<eos>")
    assert config["model_max_length"] == 64


def test_no_chat_template(tiny, tmp_path):
    del tiny.metadata["tokenizer.chat_template"]
    build(tiny, tmp_path)
    assert not (tmp_path / "chat_template.jinja").exists()
    assert "chat_template" not in json.loads((tmp_path / "tokenizer_config.json").read_text())


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"pre": "unheard-of"}, "'unheard-of'; known are gpt-2, llama-bpe"),
        ({"model": "llama"}, "kind 'llama'"),
        ({"token_type": [1]}, "264 tokens but 1 token types"),
        ({"merges": ["h nothing"]}, "inconsistent"),
        ({"merges": ["broken"]}, "inconsistent"),
        ({"eos_token_id": 5000}, "eos token has the id 5000"),
    ],
)
def test_unusable_tokenizers(tiny, tmp_path, changes, problem):
    with pytest.raises(UnsupportedModelError, match=problem):
        build(tiny, tmp_path, **changes)


def test_a_missing_name_is_not_guessed(tiny, tmp_path):
    del tiny.metadata["tokenizer.ggml.pre"]
    with pytest.raises(UnsupportedModelError, match=r"tokenizer\.ggml\.pre\) is None"):
        build(tiny, tmp_path)


def test_repeated_tokens(tiny, tmp_path):
    tokens = tiny.metadata["tokenizer.ggml.tokens"]
    tokens[3] = tokens[4]
    with pytest.raises(UnsupportedModelError, match="1 tokens occur more than once"):
        build(tiny, tmp_path)
