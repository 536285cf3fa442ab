"""`Tokenizer`: text to token ids and back, around a tokenizer of the `tokenizers` library.

Front-end process. After loading, nothing here changes the underlying tokenizer, so encode and
decode may be called from several threads at once.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from framework.frontend.checks import encodable, plain
from framework.frontend.token_bytes import TokenBytes, byte_reader, is_byte_level
from framework.sdk.remote_code import refuse_foreign_code
from hookspecs.config import ModelConfig
from hookspecs.contracts.model import ResolvedModel
from hookspecs.errors import InvalidRequestError, ModelNotFoundError, UnsupportedModelError

__all__ = ["Tokenizer", "load_tokenizer"]

_GENERIC: Final = ("PreTrainedTokenizerFast", "TokenizersBackend")
"""Names of the class that takes a tokenizer.json as it is."""
_PLAIN_MODELS: Final = ("gpt2", "llama", "qwen3")
"""Types of models for which `AutoTokenizer` follows such a name; for some others it knows better.
Those that GGUF files are converted to, among others."""


class Tokenizer:
    """Encodes, decodes and renders chats."""

    def __init__(self, pretrained: Any) -> None:
        """`pretrained`: a transformers tokenizer that is backed by `tokenizers`.

        UnsupportedModelError for one that is not."""
        backend = getattr(pretrained, "backend_tokenizer", None)
        if backend is None:
            raise UnsupportedModelError(
                f"{type(pretrained).__name__} has no tokenizer.json form; convert the tokenizer "
                'to one, or set model.tokenizer to another (or to "none")'
            )
        # A tokenizer.json may carry settings meant for training batches.
        backend.no_truncation()
        backend.no_padding()
        self.pretrained = pretrained
        self.backend = backend
        """tokenizers.Tokenizer; only to be read from."""
        self.vocab_size: int = backend.get_vocab_size(with_added_tokens=True)
        """Tokens, with added ones. May differ from the width of the model's logits."""
        added = backend.get_added_tokens_decoder()
        self.special_ids: frozenset[int] = frozenset(pretrained.all_special_ids) | frozenset(
            token_id for token_id, token in added.items() if token.special
        )
        self._hidden_ids = frozenset(id_ for id_, token in added.items() if token.special)
        """What the library leaves out with `skip_special_tokens`."""
        self._added_ids = frozenset(added)
        """Special ones and others: they are written as text."""
        self._texts: dict[int, str] = {}

    @cached_property
    def max_token_chars(self) -> int:
        """Characters of the longest token as the vocabulary writes it, which are not fewer than
        those of its text: a byte or a space is written as one character, or more."""
        return max(map(len, self.backend.get_vocab(with_added_tokens=True)), default=1)

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Token ids of `text`. InvalidRequestError for text that is not valid Unicode."""
        if not encodable(text):
            raise InvalidRequestError(
                "the prompt has lone surrogates, which are not valid Unicode text",
                param="prompt",
                value=plain(text),
            )
        ids: list[int] = self.backend.encode(text, add_special_tokens=add_special_tokens).ids
        return ids

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """Text of `ids`, as at the beginning of a text."""
        text: str = self.backend.decode(ids, skip_special_tokens=skip_special_tokens)
        return text

    def token_text(self, token_id: int) -> str:
        """Text of one token inside a text, so with its leading space; U+FFFD for a part of a
        character. Special tokens are shown."""
        known = self._texts.get(token_id)
        if known is None:
            once = self.decode([token_id], skip_special_tokens=False)
            twice = self.decode([token_id, token_id], skip_special_tokens=False)
            known = twice[len(once) :] if twice.startswith(once) else once
            self._texts[token_id] = known
        return known

    @cached_property
    def _read_bytes(self) -> Callable[[str], bytes]:
        return byte_reader(self.backend)

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that a token stands for; those of its text for an added token, special or
        not; none for an id without a token."""
        token = self.backend.id_to_token(token_id)
        if token is None:
            return b""
        return token.encode() if token_id in self._added_ids else self._read_bytes(token)

    def byte_table(self, *, skip_special_tokens: bool) -> TokenBytes | None:
        """The bytes of each token in a text; None unless the tokenizer's decoder is byte-level."""
        return self._byte_tables[skip_special_tokens] if self._byte_tables else None

    @cached_property
    def _byte_tables(self) -> tuple[TokenBytes, TokenBytes] | None:
        if not is_byte_level(self.backend):
            return None
        return TokenBytes(self.backend, frozenset()), TokenBytes(self.backend, self._hidden_ids)

    def bad_word_ids(self, word: str) -> list[list[int]]:
        """The token sequences of `word` at a beginning and after a space, without doubles.

        InvalidRequestError for a word that has no tokens."""
        found: list[list[int]] = []
        for form in (word, f" {word}"):
            ids = self.encode(form, add_special_tokens=False)
            if form == word and not ids:
                raise InvalidRequestError(
                    f"the bad word {word!r} has no tokens in this model's vocabulary",
                    param="bad_words",
                    value=plain(word),
                )
            if ids not in found:
                found.append(ids)
        return found

    @cached_property
    def _reserved_names(self) -> frozenset[str]:
        render = self.pretrained.apply_chat_template
        return frozenset(inspect.signature(render).parameters) | {"messages"}

    @property
    def has_chat_template(self) -> bool:
        """Whether `render_chat` can do anything."""
        return bool(self.pretrained.chat_template)

    def render_chat(
        self,
        messages: list[dict[str, Any]],
        *,
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] = (),
        template_arguments: Mapping[str, Any] | None = None,
    ) -> str:
        """The model's chat template applied to checked messages (see chat.py).
        `template_arguments`: further variables that the template reads; not the arguments of the
        rendering itself, among which is the template.

        InvalidRequestError with the template's own message when it refuses them."""
        arguments = dict(template_arguments or {})
        if reserved := sorted(self._reserved_names & arguments.keys()):
            raise InvalidRequestError(
                f"{reserved[0]!r} is not a variable of the chat template but an argument of the "
                "rendering, which requests may not set; leave it out",
                param="chat_template_kwargs",
                value=reserved[0],
            )
        if not self.has_chat_template:
            raise InvalidRequestError(
                "this model has no chat template; render the conversation yourself and give it "
                "as a prompt",
                param="messages",
            )
        try:
            text = self.pretrained.apply_chat_template(
                messages,
                tools=list(tools) or None,
                tokenize=False,
                add_generation_prompt=add_generation_prompt,
                **arguments,
            )
        # A template is the model author's program: whatever it raises over these messages is
        # an answer to them.
        except Exception as error:
            raise InvalidRequestError(
                f"the chat template refused the messages: {error}", param="messages"
            ) from error
        return str(text)


def load_tokenizer(config: ModelConfig, model: ResolvedModel) -> Tokenizer | None:
    """The tokenizer at `model.tokenizer_path`, None if there is none. Imports transformers.

    The model source has decided what `config.tokenizer` means and fetched it; here nothing is
    downloaded. ModelNotFoundError if the files are not there; UnsupportedModelError if they can
    not be read, or need code that `model.trust_remote_code` does not allow, such as another
    repository's."""
    path = model.tokenizer_path
    if path is None:
        return None
    if config.trust_remote_code:
        refuse_foreign_code(path)
    kind = _class_for(path)
    try:
        pretrained = kind.from_pretrained(
            path, trust_remote_code=config.trust_remote_code, local_files_only=True
        )
    except OSError as error:
        raise ModelNotFoundError(
            f"no tokenizer at {path!r}: {error}. Set model.tokenizer to a directory or hub "
            'name that has one, or to "none"'
        ) from error
    except Exception as error:  # what a damaged file raises in the library is anything
        raise UnsupportedModelError(
            f"the tokenizer at {path!r} can not be used: {type(error).__name__}: {error}"
        ) from error
    return Tokenizer(pretrained)


def _class_for(path: str) -> Any:
    """What loads the tokenizer. `AutoTokenizer` brings torch with it, so it is asked only where
    there is a choice: not for a tokenizer of no class of its own, unless the model beside it may
    need another one."""
    if _named_class(path) in _GENERIC and _model_type(path) in (None, *_PLAIN_MODELS):
        from transformers import PreTrainedTokenizerFast

        return PreTrainedTokenizerFast
    from transformers import AutoTokenizer

    return AutoTokenizer


def _model_type(path: str) -> object:
    """What config.json names, "" if it can not be read; None if there is no such file."""
    file = Path(path, "config.json")
    if not file.exists():
        return None
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return ""
    return config.get("model_type", "") if isinstance(config, dict) else ""


def _named_class(path: str) -> object:
    """What tokenizer_config.json names; None if there is no such file, or code goes with it."""
    try:
        config = json.loads(Path(path, "tokenizer_config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None  # the library says what is wrong
    if not isinstance(config, dict) or "auto_map" in config:
        return None
    return config.get("tokenizer_class")
