"""The forms of a prompt: text, token ids, or a dict of these or of embeddings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import msgspec
import numpy as np

from framework.frontend.checks import encodable, invalid, shorten, text, token_ids
from framework.frontend.tokenizer import Tokenizer
from framework.frontend.validation import MAX_ID_CHARS
from hookspecs.errors import InvalidRequestError

__all__ = ["ParsedPrompt", "Prompt", "PromptParser"]

Prompt: TypeAlias = str | list[int] | Mapping[str, Any]
"""Text; token ids; or a dict with exactly one of `prompt` (text), `prompt_token_ids` and
`prompt_embeds` (float array [tokens, hidden size]), and optionally `cache_salt`. `prompt` beside
`prompt_token_ids` is the text that outputs show; it is not tokenised."""

KEYS: Final = frozenset({"prompt", "prompt_token_ids", "prompt_embeds", "cache_salt"})


class ParsedPrompt(msgspec.Struct, kw_only=True):
    """A prompt in its one internal form."""

    text: str | None
    token_ids: list[int]
    """A list of its own; with embeds, a filler id a position."""
    embeds: Any = None
    """float32 array [tokens, hidden size], or None."""
    cache_salt: str = ""


class PromptParser:
    """Turns prompts into ParsedPrompt; InvalidRequestError for whatever is wrong with one."""

    def __init__(
        self,
        tokenizer: Tokenizer | None,
        *,
        vocab_size: int,
        hidden_size: int,
        max_model_len: int,
        accepts_embeds: bool,
    ) -> None:
        self._tokenizer = tokenizer
        self._vocab_size = vocab_size
        self._hidden_size = hidden_size
        self._max_model_len = max_model_len
        self._accepts_embeds = accepts_embeds

    def parse(self, prompt: object) -> ParsedPrompt:
        """Tokenise if it is text; check form, ids and length."""
        match prompt:
            case str():
                return self._from_text(prompt)
            case list() | tuple():
                return self._from_ids(prompt, None)
            case Mapping():
                return self._from_dict(prompt)
            case _:
                raise invalid(
                    "prompt",
                    prompt,
                    "text, a list of token ids, or a dict with prompt, prompt_token_ids or "
                    "prompt_embeds",
                )

    def check_ids(self, ids: list[int]) -> None:
        """Length and range of a prompt's token ids."""
        if not ids:
            raise InvalidRequestError(
                "the prompt is empty; it must have at least one token", param="prompt", value=""
            )
        # The length first: a list of a million ids is refused without a look at them.
        self._check_length(len(ids))
        token_ids("prompt", ids, self._vocab_size)

    def encode(self, param: str, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Token ids of a text that may become a prompt. InvalidRequestError names `param`.

        A text that is too long for any tokens is refused without a look at it: to tokenise it
        would hold up other requests."""
        if self._tokenizer is None:
            raise InvalidRequestError(
                "the model has no tokenizer; set model.tokenizer, or give the prompt as token ids "
                "(the command line gives text: use the Python or the HTTP API)",
                param=param,
            )
        longest = self._tokenizer.max_token_chars
        if len(text) > self._max_model_len * longest:
            raise InvalidRequestError(
                f"the prompt has {len(text)} characters; with a limit of {self._max_model_len} "
                f"tokens for prompt and output, and at most {longest} characters a token, more "
                f"than {self._max_model_len * longest} can not fit",
                param=param,
                value=len(text),
            )
        return self._tokenizer.encode(text, add_special_tokens=add_special_tokens)

    def _check_length(self, count: int) -> None:
        if count >= self._max_model_len:
            raise InvalidRequestError(
                f"the prompt has {count} tokens; with a limit of {self._max_model_len} tokens for "
                f"prompt and output it may have at most {self._max_model_len - 1}",
                param="prompt",
                value=count,
            )

    def _from_text(self, prompt: str) -> ParsedPrompt:
        # No tokens also where a tokenizer adds a first one of its own: nobody means that by "".
        ids = self.encode("prompt", prompt) if prompt else []
        self.check_ids(ids)
        return ParsedPrompt(text=prompt, token_ids=ids)

    def _from_ids(self, prompt: list[Any] | tuple[Any, ...], shown: str | None) -> ParsedPrompt:
        ids = list(prompt)
        self.check_ids(ids)
        return ParsedPrompt(text=shown, token_ids=ids)

    def _from_dict(self, prompt: Mapping[str, Any]) -> ParsedPrompt:
        unknown = [key for key in prompt if key not in KEYS]
        if unknown:
            raise InvalidRequestError(
                f"the prompt has an unknown key {shorten(unknown[0])}; known are "
                f"{', '.join(sorted(KEYS))}",
                param="prompt",
            )
        salt = text("cache_salt", prompt.get("cache_salt", ""), MAX_ID_CHARS, empty=True)
        shown, ids, embeds = (
            prompt.get(key) for key in ("prompt", "prompt_token_ids", "prompt_embeds")
        )
        if shown is not None and not isinstance(shown, str):
            raise invalid("prompt", shown, "text")
        if embeds is not None:
            if shown is not None or ids is not None:
                raise InvalidRequestError(
                    "the prompt has prompt_embeds beside text or token ids; give one of them",
                    param="prompt",
                )
            parsed = self._from_embeds(embeds)
        elif ids is not None:
            if not isinstance(ids, (list, tuple)):
                raise invalid("prompt_token_ids", ids, "a list of token ids")
            if shown is not None and not encodable(shown):
                raise invalid("prompt", shown, "valid Unicode text without lone surrogates")
            parsed = self._from_ids(ids, shown)
        elif shown is not None:
            parsed = self._from_text(shown)
        else:
            raise InvalidRequestError(
                "the prompt has none of prompt, prompt_token_ids and prompt_embeds", param="prompt"
            )
        parsed.cache_salt = salt
        return parsed

    def _from_embeds(self, embeds: Any) -> ParsedPrompt:
        param = "prompt_embeds"
        if not self._accepts_embeds:
            raise InvalidRequestError(
                "prompt_embeds are not supported by the selected worker", param=param
            )
        allowed = f"a float array of shape [tokens, {self._hidden_size}]"
        try:
            array = np.asarray(embeds)
        except (TypeError, ValueError, RuntimeError) as error:
            raise InvalidRequestError(
                f"prompt_embeds can not be read as an array: {error}; it must be {allowed}",
                param=param,
            ) from error
        if array.dtype.kind != "f" or array.ndim != 2 or array.shape[1] != self._hidden_size:
            raise InvalidRequestError(
                f"prompt_embeds has dtype {array.dtype} and shape {list(array.shape)}; it must be "
                f"{allowed}",
                param=param,
            )
        ids = [0] * array.shape[0]
        self.check_ids(ids)
        if not np.isfinite(array).all():
            raise InvalidRequestError("prompt_embeds holds NaN or infinity", param=param)
        return ParsedPrompt(
            text=None, token_ids=ids, embeds=np.array(array, dtype=np.float32, order="C")
        )
