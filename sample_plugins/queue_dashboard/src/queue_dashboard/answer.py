"""Answers to HTTP requests, in the terms of ASGI 3 (https://asgi.readthedocs.io)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import msgspec

__all__ = ["Answer", "Send", "json_answer"]

Send: TypeAlias = Callable[[dict[str, Any]], Awaitable[None]]

# The page needs nothing but itself and its style; what was shown is old a moment later.
_HEADERS = (
    (b"content-security-policy", b"default-src 'none'; style-src 'unsafe-inline'"),
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
)


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """A whole answer."""

    status: int = 200
    content_type: str
    body: bytes
    headers: tuple[tuple[bytes, bytes], ...] = ()

    async def send(self, send: Send, *, head: bool) -> None:
        """`head`: without the body, as HEAD has it."""
        length = str(len(self.body)).encode()
        headers = [
            (b"content-type", self.content_type.encode()),
            (b"content-length", length),
            *_HEADERS,
            *self.headers,
        ]
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if head else self.body})


def json_answer(
    value: Any, status: int = 200, headers: tuple[tuple[bytes, bytes], ...] = ()
) -> Answer:
    """Any value that msgspec encodes."""
    return Answer(
        status=status,
        content_type="application/json",
        body=msgspec.json.encode(value),
        headers=headers,
    )
