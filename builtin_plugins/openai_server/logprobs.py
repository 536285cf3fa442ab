"""Log-probabilities in the forms of the OpenAI API. All numbers are finite.

Logprobs follow the tokens: after a stop string they end with the token that completed it, while
the text ends before it. A stream gives the same entries as an answer in one piece.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from hookspecs.contracts.frontend import EngineClient
from hookspecs.types.outputs import Logprob, RequestOutput

__all__ = [
    "ChatLogprobs",
    "CompletionLogprobs",
    "PromptLogprob",
    "TextAligner",
    "TokenLogprob",
    "TopLogprob",
    "chat_logprobs",
    "echo_entries",
    "prompt_logprobs",
    "token_text",
]

LOWEST: Final = -9999.0
"""In place of minus infinity and of all that JSON can not hold, as the OpenAI API has it."""
REPLACEMENT: Final = "\ufffd"


class TopLogprob(msgspec.Struct, kw_only=True):
    """One of the most likely tokens at a position."""

    token: str
    logprob: float
    bytes: list[int] | None
    """Exactly what the token stands for, which may be part of a character."""


class TokenLogprob(TopLogprob, kw_only=True):
    """The token at a position."""

    top_logprobs: list[TopLogprob]
    """The `top_logprobs` most likely ones, the most likely first."""


class ChatLogprobs(msgspec.Struct, kw_only=True):
    """Of a choice of a chat completion."""

    content: list[TokenLogprob]
    refusal: None = None


class CompletionLogprobs(msgspec.Struct, kw_only=True):
    """Of a choice of a completion; all lists have one element a token."""

    tokens: list[str] = msgspec.field(default_factory=list)
    """The text that each token adds: none for a token that ends inside a character."""
    token_logprobs: list[float | None] = msgspec.field(default_factory=list)
    top_logprobs: list[dict[str, float] | None] = msgspec.field(default_factory=list)
    """The `logprobs` most likely tokens, and the token itself where it is not among them."""
    text_offset: list[int] = msgspec.field(default_factory=list)
    """Characters of the choice's text before each token."""


class PromptLogprob(msgspec.Struct, kw_only=True):
    """One token at a position of the prompt."""

    logprob: float
    rank: int
    decoded_token: str | None


def finite(logprob: float) -> float:
    """The number, or the lowest one that answers have."""
    return logprob if logprob >= LOWEST else LOWEST


def token_text(engine: EngineClient, token_id: int) -> str:
    """A name of one token that is valid text: what it stands for, or its bytes or id."""
    if not engine.info.has_tokenizer:
        return f"token_id:{token_id}"
    return _bytes_text(engine.token_bytes(token_id))


def _bytes_text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)


def chat_logprobs(
    engine: EngineClient, positions: Iterable[Mapping[int, Logprob]], top: int
) -> ChatLogprobs:
    """`positions`: of each token its dict, the token itself first."""
    content = []
    for position in positions:
        entries = [
            _top_logprob(engine, token_id, logprob.logprob)
            for token_id, logprob in position.items()
        ]
        chosen = entries[0]
        likely = entries[1:] if len(entries) > top else entries
        content.append(
            TokenLogprob(
                token=chosen.token,
                logprob=chosen.logprob,
                bytes=chosen.bytes,
                top_logprobs=sorted(likely, key=lambda entry: -entry.logprob),
            )
        )
    return ChatLogprobs(content=content)


def _top_logprob(engine: EngineClient, token_id: int, logprob: float) -> TopLogprob:
    data = engine.token_bytes(token_id)
    return TopLogprob(token=_bytes_text(data), logprob=finite(logprob), bytes=list(data))


def prompt_logprobs(output: RequestOutput, top: int) -> list[dict[str, PromptLogprob] | None]:
    """Of each prompt token the dict of token id to numbers: its own, and the `top` most likely;
    null for the first, which nothing predicts."""
    return [
        None if position is None else _prompt_position(_most_likely(position, top))
        for position in output.prompt_logprobs or ()
    ]


def _prompt_position(position: Mapping[int, Logprob]) -> dict[str, PromptLogprob]:
    return {
        str(token_id): PromptLogprob(
            logprob=finite(entry.logprob), rank=entry.rank, decoded_token=entry.decoded_token
        )
        for token_id, entry in position.items()
    }


def _most_likely(position: Mapping[int, Logprob], top: int) -> dict[int, Logprob]:
    """The token itself, first, and the `top` most likely ones of those that are known."""
    return {
        token_id: entry
        for at, (token_id, entry) in enumerate(position.items())
        if at == 0 or entry.rank <= top
    }


Entry = tuple[str, float | None, dict[str, float] | None]
"""What a token adds to the text, its logprob, and the most likely ones."""


def echo_entries(engine: EngineClient, output: RequestOutput, top: int) -> list[Entry]:
    """Of the tokens of the prompt; the first, which nothing predicts, has no numbers."""
    entries: list[Entry] = []
    positions = output.prompt_logprobs or ()
    for token_id, position in zip(output.prompt_token_ids, positions, strict=False):
        if position is None:
            entries.append((token_text(engine, token_id), None, None))
        else:
            entries.append(_entry(engine, _most_likely(position, top)))
    return entries


def _entry(engine: EngineClient, position: Mapping[int, Logprob]) -> Entry:
    """Names are distinct, so that no alternative gets lost."""
    likely: dict[str, float] = {}
    for token_id, logprob in position.items():
        name = logprob.decoded_token
        if name is None or (likely and (not name or name in likely)):
            name = token_text(engine, token_id)
        if name in likely:
            name = f"token_id:{token_id}"
        likely[name] = finite(logprob.logprob)
    token, number = next(iter(likely.items()))
    return token, number, likely


class TextAligner:
    """Finds where in a choice's text each token begins, while text and tokens come in pieces.

    Text is held back while it may begin a stop string, so tokens wait here until their text has
    come. A special token that the text leaves out begins where the next one does. So the offsets
    do not depend on how the output is cut.
    """

    def __init__(self, engine: EngineClient) -> None:
        self._engine = engine
        self._waiting: deque[Entry] = deque()
        self._text = ""
        """Text from `_at` on."""
        self._at = 0
        self._begin = 0
        """Where the last token began."""

    def echo(self, text: str, entries: Sequence[Entry]) -> CompletionLogprobs:
        """The prompt's part: its text and the entries of its tokens."""
        self._text += text
        self._waiting.extend(entries)
        given = self._take(finished=True)
        # The output begins after the prompt, however much of that the tokens account for.
        self._at += len(self._text)
        self._text = ""
        return given

    def push(
        self, text: str, positions: Iterable[Mapping[int, Logprob]], *, finished: bool
    ) -> CompletionLogprobs:
        """The entries whose text has come; all of them when the output has finished."""
        self._text += text
        self._waiting.extend(_entry(self._engine, position) for position in positions)
        return self._take(finished=finished)

    def _take(self, *, finished: bool) -> CompletionLogprobs:
        given = CompletionLogprobs()
        while self._waiting:
            token, number, likely = self._waiting[0]
            if not self._pass(token, finished):
                break
            self._waiting.popleft()
            given.tokens.append(token)
            given.token_logprobs.append(number)
            given.top_logprobs.append(likely)
            given.text_offset.append(self._begin)
        return given

    def _pass(self, token: str, finished: bool) -> bool:
        """Go to where `token` begins, and past it; False while that can not be told."""
        self._begin = self._at
        if not token:
            return True
        # Bytes that are no text are shown in the text, and in no token's.
        rest = self._text.lstrip(REPLACEMENT)
        begin = self._at + len(self._text) - len(rest)
        # Some tokenizers drop the first space of a text.
        forms = [form for form in (token, token.lstrip(" ")) if form]
        if not finished and any(len(rest) < len(one) and one.startswith(rest) for one in forms):
            return False
        for form in forms:
            # Shorter than the token is what a stop string has left of it.
            if rest.startswith(form) or (rest and form.startswith(rest)):
                length = min(len(form), len(rest))
                self._begin, self._at, self._text = begin, begin + length, rest[length:]
                break
        return True
