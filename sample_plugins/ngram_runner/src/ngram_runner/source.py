"""The model source `ngram`. Launcher process."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import tempfile
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
from hookspecs.contracts.model import ModelInfo, ModelSource, ResolvedModel
from hookspecs.errors import ConfigError, ModelNotFoundError, UnsupportedModelError
from tokenizers import Tokenizer

from ngram_runner.options import NgramOptions
from ngram_runner.text_tokenizer import (
    END,
    END_ID,
    documents_of,
    encode_documents,
    make_tokenizer,
)

__all__ = ["ARCHITECTURE", "TOKENS_FILE", "NgramSource"]

ARCHITECTURE: Final = "NgramForCausalLM"
TOKENS_FILE: Final = "tokens.npy"
"""int32[tokens]: the documents of the text, each with the end token after it."""
_FORMAT: Final = 1
"""Part of the cache key; raise it whenever the files that are written change."""
_PREFIX: Final = "ngram:"


class NgramSource(ModelSource):
    """`ngram:PATH`, where PATH is a regular file with a text in UTF-8.

    The tokenizer and the token ids of a text are made once and kept in the option `cache_dir`,
    under the SHA-256 of its content.
    """

    def matches(self, name: str) -> bool:
        return name.startswith(_PREFIX)

    def resolve(self, name: str, revision: str | None) -> ResolvedModel:
        """ModelNotFoundError for a text or a cache that can not be used, UnsupportedModelError
        for a text of which no model can be made, ConfigError for settings that do not go with
        such a model."""
        if revision is not None:
            raise ModelNotFoundError(
                f"model {name!r} is a local file, which has no revisions, but model.revision is "
                f"{revision!r}. Leave model.revision out."
            )
        options = self.context.options
        if not isinstance(options, NgramOptions):
            raise ConfigError(f"the model source needs NgramOptions, not {options!r}")
        if self.context.config.executor.worker == "auto":
            raise ConfigError(
                f"model {name!r} runs on the worker 'ngram' alone, which executor.worker = 'auto' "
                "does not choose. Set executor.worker to 'ngram'."
            )
        content = _read(name, options.max_bytes)
        directory = self._prepared(name, content, _absolute("cache_dir", options.cache_dir))
        vocab_size = Tokenizer.from_file(str(directory / "tokenizer.json")).get_vocab_size()
        has_tokenizer = self._wants_tokenizer()
        return ResolvedModel(
            name=name,
            path=str(directory),
            tokenizer_path=str(directory) if has_tokenizer else None,
            info=ModelInfo(
                architecture=ARCHITECTURE,
                vocab_size=vocab_size,
                max_model_len=options.max_model_len,
                eos_token_ids=(END_ID,),
                has_tokenizer=has_tokenizer,
            ),
        )

    def _wants_tokenizer(self) -> bool:
        tokenizer = self.context.config.model.tokenizer
        if tokenizer not in (None, "none"):
            raise ConfigError(
                f"model.tokenizer is {tokenizer!r}, but an n-gram model has the ids of its own "
                "tokenizer. Leave model.tokenizer out, or set it to none."
            )
        return tokenizer is None

    def _prepared(self, name: str, content: bytes, cache: Path) -> Path:
        """The directory with the files made of a text, which are there completely or not at all."""
        target = cache / f"{hashlib.sha256(content).hexdigest()[:32]}-v{_FORMAT}"
        try:
            if not target.is_dir():
                cache.mkdir(parents=True, exist_ok=True)
                temporary = Path(tempfile.mkdtemp(prefix=f"{target.name}.tmp-", dir=cache))
                try:
                    self._make(name, content, temporary)
                    _rename(temporary, target)
                finally:
                    shutil.rmtree(temporary, ignore_errors=True)
        except OSError as error:
            raise ModelNotFoundError(
                f"model {name!r}: its files can not be kept in {str(cache)!r} ({error}). Set "
                "plugins.options.ngram.cache_dir to a directory that can be written."
            ) from error
        return target

    def _make(self, name: str, content: bytes, directory: Path) -> None:
        try:
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise UnsupportedModelError(
                f"model {name!r} is not a text in UTF-8: {error}. Convert it."
            ) from error
        documents = documents_of(text)
        if not documents:
            raise UnsupportedModelError(f"model {name!r} is a text without words. Give another.")
        self.context.progress("making a tokenizer", 0.0)
        tokenizer = make_tokenizer(documents)
        tokenizer.save(str(directory / "tokenizer.json"))
        config = {"tokenizer_class": "TokenizersBackend", "eos_token": END}
        (directory / "tokenizer_config.json").write_bytes(msgspec.json.encode(config))
        self.context.progress("encoding the text", 0.5)
        np.save(directory / TOKENS_FILE, encode_documents(tokenizer, documents))
        self.context.progress("encoding the text", 1.0)


def _read(name: str, max_bytes: int) -> bytes:
    path = _absolute("model.name", name.removeprefix(_PREFIX))
    try:
        # Neither waits for a writer nor reads without end: others than files may do both.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        with open(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise OSError("it is no regular file")
            content = file.read(max_bytes + 1)
    except OSError as error:
        raise ModelNotFoundError(
            f"model {name!r}: the text file {str(path)!r} can not be read ({error}). Give the path "
            "of one after 'ngram:'."
        ) from error
    if len(content) > max_bytes:
        raise UnsupportedModelError(
            f"model {name!r} is a text of more than {max_bytes} bytes. Give a shorter one, or "
            "raise plugins.options.ngram.max_bytes: counts need many times as much memory."
        )
    return content


def _absolute(what: str, given: str) -> Path:
    try:
        return Path(given).expanduser().resolve()
    except (OSError, RuntimeError, ValueError) as error:
        raise ModelNotFoundError(
            f"{what}: {given!r} is no usable path ({error}). Give another."
        ) from error


def _rename(temporary: Path, target: Path) -> None:
    """Another process may have been first: what it made of the same content is the same."""
    try:
        os.rename(temporary, target)
    except OSError:
        if not target.is_dir():
            raise
