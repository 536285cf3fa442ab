"""The model source: tokenizer, cache, and texts of which no model can be made."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hookspecs import EngineConfig
from hookspecs.config import ExecutorConfig, ModelConfig
from hookspecs.contracts.model import ModelSourceContext, ResolvedModel
from hookspecs.errors import ConfigError, ModelNotFoundError, UnsupportedModelError
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from ngram_runner.options import NgramOptions
from ngram_runner.source import TOKENS_FILE, NgramSource
from ngram_runner.text_tokenizer import (
    END,
    END_ID,
    UNKNOWN,
    documents_of,
    encode_documents,
    make_tokenizer,
)


def source(cache: Path | str, *, worker: str = "ngram", **model: Any) -> NgramSource:
    config = EngineConfig(model=ModelConfig(**model), executor=ExecutorConfig(worker=worker))
    options = NgramOptions(cache_dir=str(cache), max_model_len=99, max_bytes=99)
    return NgramSource(ModelSourceContext(config=config, options=options))


def resolved(tmp_path: Path, content: bytes, **model: Any) -> ResolvedModel:
    text = tmp_path / "text.txt"
    text.write_bytes(content)
    return source(tmp_path / "cache", **model).resolve(f"ngram:{text}", None)


def test_names() -> None:
    assert source("cache").matches("ngram:a.txt")
    assert not source("cache").matches("a.txt")


def test_a_text_becomes_a_tokenizer_and_token_ids(tmp_path: Path) -> None:
    model = resolved(tmp_path, b"b a, a!\n\nb a\n")
    assert model.path is not None
    assert model.tokenizer_path == model.path
    assert (model.info.vocab_size, model.info.max_model_len) == (6, 99)
    assert model.info.eos_token_ids == (END_ID,)
    tokenizer = Tokenizer.from_file(f"{model.path}/tokenizer.json")
    words = [tokenizer.id_to_token(i) for i in range(6)]
    assert words == [END, UNKNOWN, "\u2581a", "\u2581b", "!", ","]
    assert np.load(Path(model.path, TOKENS_FILE)).tolist() == [3, 2, 5, 2, 4, END_ID, 3, 2, END_ID]
    assert tokenizer.encode("a b c").ids == [2, 3, 1]
    assert tokenizer.decode([3, 2, 5, 2, 4]) == "b a, a!"


@given(st.lists(st.text("ab.,!é'<|> \n\t", max_size=20), min_size=1, max_size=3))
def test_a_document_is_decoded_with_single_spaces(parts: list[str]) -> None:
    documents = [part for part in parts if part.strip()]
    tokenizer = make_tokenizer(documents)
    ids = encode_documents(tokenizer, documents).tolist()
    for document in documents:
        end = ids.index(END_ID)
        assert tokenizer.decode(ids[:end]) == " ".join(document.split())
        ids = ids[end + 1 :]
    assert ids == []


def test_a_blank_line_ends_a_document() -> None:
    assert documents_of("\n\na\nb\n  \nc\n\n\n") == ["a\nb", "c"]


def test_the_name_of_the_end_token_in_a_text_is_text(tmp_path: Path) -> None:
    model = resolved(tmp_path, f"a {END} b".encode())
    tokens = np.load(Path(str(model.path), TOKENS_FILE)).tolist()
    assert tokens.index(END_ID) == len(tokens) - 1


def test_files_are_made_once_for_a_content(tmp_path: Path) -> None:
    first = resolved(tmp_path, b"a b")
    made = {path: path.stat().st_mtime_ns for path in Path(str(first.path)).iterdir()}
    (tmp_path / "copy.txt").write_bytes(b"a b")
    again = source(tmp_path / "cache").resolve(f"ngram:{tmp_path}/copy.txt", None)
    assert again.path == first.path
    assert {path: path.stat().st_mtime_ns for path in made} == made
    assert resolved(tmp_path, b"a c").path != first.path
    assert len(list((tmp_path / "cache").iterdir())) == 2


def test_without_a_tokenizer(tmp_path: Path) -> None:
    model = resolved(tmp_path, b"a b", tokenizer="none")
    assert model.tokenizer_path is None
    assert not model.info.has_tokenizer


@pytest.mark.parametrize(
    ("content", "reason"),
    [(b"", "without words"), (b" \n\n ", "without words"), (b"\xff", "UTF-8")],
)
def test_no_model_can_be_made_of_such_a_text(tmp_path: Path, content: bytes, reason: str) -> None:
    with pytest.raises(UnsupportedModelError, match=reason):
        resolved(tmp_path, content)
    assert list((tmp_path / "cache").iterdir()) == []


def test_files_that_can_not_be_used(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match=r"missing\.txt' can not be read"):
        source(tmp_path).resolve("ngram:missing.txt", None)
    with pytest.raises(ModelNotFoundError, match="can not be read"):
        source(tmp_path).resolve(f"ngram:{tmp_path}", None)
    with pytest.raises(ModelNotFoundError, match="has no revisions"):
        source(tmp_path).resolve("ngram:a.txt", "main")
    (tmp_path / "file").touch()
    (tmp_path / "text.txt").write_text("a")
    with pytest.raises(ModelNotFoundError, match="cache_dir"):
        source(tmp_path / "file").resolve(f"ngram:{tmp_path}/text.txt", None)


def test_settings_that_do_not_go_with_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"Leave model\.tokenizer out"):
        resolved(tmp_path, b"a", tokenizer="org/name")
    with pytest.raises(ConfigError, match=r"Set executor\.worker to 'ngram'"):
        source(tmp_path, worker="auto").resolve("ngram:a.txt", None)


def test_what_is_no_file_or_too_long_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path in ("/dev/zero", tmp_path / "fifo"):
        with pytest.raises(ModelNotFoundError, match="it is no regular file"):
            source(tmp_path / "cache").resolve(f"ngram:{path}", None)
    assert resolved(tmp_path, b"a" * 99).path is not None
    with pytest.raises(UnsupportedModelError, match=r"more than 99 bytes.*max_bytes"):
        resolved(tmp_path, b"a" * 100)
