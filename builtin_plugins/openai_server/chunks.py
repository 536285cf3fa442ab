"""Chunks of a stream, encoded with little work for each: all that is constant is encoded once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal

import msgspec
from msgspec import UNSET, UnsetType

from builtin_plugins.openai_server.usage import Usage

__all__ = ["ChunkWriter", "Envelope"]

MARK: Final = "\0text\0"
"""Stands for the text while the rest of a chunk is encoded."""

_encode = msgspec.json.Encoder().encode


class Envelope(msgspec.Struct, kw_only=True):
    """What all chunks of a stream have, before their `choices` and `usage`."""

    id: str
    object: str
    created: int
    """Seconds since 1970, UTC."""
    model: str
    service_tier: Literal["default"] | UnsetType = UNSET
    """If the client gave one."""


class ChunkWriter:
    """Server-sent events of one stream."""

    def __init__(self, envelope: Envelope, *, null_usage: bool) -> None:
        """`null_usage`: chunks without usage say so, as the OpenAI API has it where the last
        chunk has one."""
        self._head = b'data: %b,"choices":[' % _encode(envelope)[:-1]
        self._tail = b'],"usage":null}\n\n' if null_usage else b"]}\n\n"

    def chunk(self, choice: msgspec.Struct, usage: Usage | None = None) -> bytes:
        """A chunk with one choice."""
        if usage is None:
            return b"%b%b%b" % (self._head, _encode(choice), self._tail)
        return b'%b%b],"usage":%b}\n\n' % (self._head, _encode(choice), _encode(usage))

    def usage(self, usage: Usage) -> bytes:
        """The chunk without choices."""
        return b'%b],"usage":%b}\n\n' % (self._head, _encode(usage))

    def texts(self, choice: Callable[[str], msgspec.Struct]) -> Callable[[str], bytes]:
        """A function from text to the chunk with `choice(text)`, of which all but the text is
        the same each time."""
        before, after = _encode(choice(MARK)).split(_encode(MARK))
        before, after = self._head + before, after + self._tail
        return lambda text: before + _encode(text) + after
