"""Answers to requests, read into records.

Streams are server-sent events (WHATWG HTML, "Server-sent events") with the chunks of the OpenAI
API as data.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Final

import msgspec

from framework.bench.record import RequestError, RequestRecord

__all__ = ["MOST_BYTES", "Answer", "StreamAnswer", "WholeAnswer"]

_KEPT: Final = 64 * 1024
"""Bytes of an error's body from which on it is given up."""
MOST_BYTES: Final = 16 << 20
"""Bytes of an answer in one piece, or of a line of a stream, at most: more is not what was asked
for, and would fill the memory."""
_SHOWN: Final = 200
"""Characters of an error's message."""


class _PromptDetails(msgspec.Struct):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int = 0
    completion_tokens: int = 0
    prompt_tokens_details: _PromptDetails | None = None


class _Delta(msgspec.Struct):
    role: str | None = None
    content: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[Any] | None = None

    def has_tokens(self) -> bool:
        return bool(self.content or self.reasoning_content or self.reasoning or self.tool_calls)


class _Choice(msgspec.Struct):
    text: str | None = None
    delta: _Delta | None = None
    finish_reason: str | None = None

    def has_tokens(self) -> bool:
        """A chunk may have no text and yet tokens: special ones, or parts of a character. Those
        that only open or end a choice have none."""
        if self.text or (self.delta is not None and self.delta.has_tokens()):
            return True
        opens = self.delta is not None and self.delta.role is not None
        return self.finish_reason is None and not opens


class _Chunk(msgspec.Struct):
    choices: list[_Choice] = []
    usage: _Usage | None = None
    error: Any = None


_decode = msgspec.json.Decoder(_Chunk).decode


class Answer(ABC):
    """One answer; errors end up in the record."""

    def __init__(self, record: RequestRecord) -> None:
        self.record = record
        self._status = 0
        self._kept = bytearray()

    def head(self, status: int, content_type: str) -> None:
        """See Receiver."""
        self._status = status

    def body(self, data: bytes) -> None:
        """See Receiver. ConnectionError for an answer that is not worth reading on."""
        if self._status == 200:
            self._read(data)
            return
        self._kept += data
        if len(self._kept) > _KEPT:
            self.end()
            raise ConnectionError(f"the answer has more than {_KEPT} bytes")

    def end(self) -> None:
        """The answer is complete."""
        if self._status != 200:
            self.fail("status", _message_of(bytes(self._kept)))
        elif self.record.error is None:
            self._check_end()

    def fail(self, kind: str, message: str) -> None:
        """The first error counts."""
        if self.record.error is None:
            text = " ".join(message.split())
            self.record.error = RequestError(
                kind=kind,
                message=text if len(text) <= _SHOWN else text[:_SHOWN] + "…",
                status=self._status or None,
            )

    @abstractmethod
    def _read(self, data: bytes) -> None:
        """A piece of the body."""

    @abstractmethod
    def _check_end(self) -> None:
        """The body is complete: note what is missing."""

    def _count(self, usage: _Usage) -> None:
        self.record.prompt_tokens = usage.prompt_tokens
        self.record.output_tokens = usage.completion_tokens
        details = usage.prompt_tokens_details
        self.record.cached_tokens = (details and details.cached_tokens) or 0

    def _take(self, data: bytes) -> _Chunk | None:
        """A chunk or a whole answer; None, and an error in the record, if it is none."""
        try:
            chunk = _decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            self.fail("answer", f"not a chunk or answer of the OpenAI API: {error}")
            return None
        if chunk.error is not None:
            self.fail("event", _message_of(data))
            return None
        return chunk


class StreamAnswer(Answer):
    """A stream; the time of each chunk is when its bytes were read."""

    def __init__(
        self, record: RequestRecord, clock: Callable[[], float], *, chunk_usage: bool = False
    ) -> None:
        """`chunk_usage`: every chunk was asked to have the usage so far."""
        super().__init__(record)
        self._clock = clock
        self._chunk_usage = chunk_usage
        self._rest = bytearray()
        """A line that has not ended."""
        self._counted = 0
        """Tokens, by the usage of the chunks so far."""
        self._done = False

    def head(self, status: int, content_type: str) -> None:
        super().head(status, content_type)
        kind = content_type.partition(";")[0].strip().lower()
        if status == 200 and kind != "text/event-stream":
            self.fail("answer", f"content type {kind or 'none'}, not text/event-stream")

    def _read(self, data: bytes) -> None:
        now = self._clock()
        first, *others = data.split(b"\n")
        self._rest += first
        if len(self._rest) > MOST_BYTES:
            raise ConnectionError(f"a line of the stream has more than {MOST_BYTES} bytes")
        if not others:
            return
        lines = [bytes(self._rest), *others[:-1]]
        self._rest = bytearray(others[-1])
        for line in lines:
            # Chunks are one line each; other fields, comments and blank lines tell nothing.
            if line.startswith(b"data:"):
                self._event(line[5:].strip(), now)

    def _event(self, data: bytes, now: float) -> None:
        if data == b"[DONE]":
            self._done = True
            return
        if self.record.error is not None or (chunk := self._take(data)) is None:
            return
        if chunk.usage is not None:
            self._count(chunk.usage)
        if not chunk.choices:
            return
        if self._chunk_usage and chunk.usage is not None:
            new = chunk.usage.completion_tokens - self._counted
            self._counted += new
            if new > 0:
                self.record.chunk_times.append(now)
                self.record.chunk_tokens.append(new)
        elif any(choice.has_tokens() for choice in chunk.choices):
            self.record.chunk_times.append(now)

    def _check_end(self) -> None:
        if not self._done:
            self.fail("answer", "the stream ended without [DONE]")


class WholeAnswer(Answer):
    """An answer in one piece."""

    def __init__(self, record: RequestRecord) -> None:
        super().__init__(record)
        self._data = bytearray()

    def _read(self, data: bytes) -> None:
        self._data += data
        if len(self._data) > MOST_BYTES:
            raise ConnectionError(f"the answer has more than {MOST_BYTES} bytes")

    def _check_end(self) -> None:
        chunk = self._take(bytes(self._data))
        if chunk is None:
            return
        if not chunk.choices:
            self.fail("answer", "it has no choices")
        elif chunk.usage is not None:
            self._count(chunk.usage)


def _message_of(body: bytes) -> str:
    """The message of an error's body, in one of the usual forms, or its text."""
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return body.decode("utf-8", "replace") or "(no body)"
    while isinstance(value, dict):
        known = [name for name in ("error", "message", "detail") if value.get(name)]
        if not known:
            break
        value = value[known[0]]
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
