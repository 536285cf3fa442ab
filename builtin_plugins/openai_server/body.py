"""Reading a request's body, within bounds."""

from __future__ import annotations

import asyncio

from starlette.datastructures import Headers
from starlette.types import Message, Receive

from builtin_plugins.openai_server.answers import JSON
from builtin_plugins.openai_server.errors import ApiError

__all__ = [
    "ClientGone",
    "bounded_receive",
    "check_declared",
    "check_json",
    "disconnected",
    "read_body",
]


class ClientGone(Exception):
    """The client closed the connection; nobody waits for an answer."""


def check_json(headers: Headers) -> None:
    """ApiError (415) unless the body is declared as plain JSON.

    Also where the body is empty: a page of another site can send any other type without asking
    (Fetch standard, CORS-safelisted request-header), and so could use a server without keys.
    """
    kind, _, parameters = headers.get("content-type", "").partition(";")
    charset = parameters.strip().lower().replace('"', "")
    if kind.strip().lower() != JSON or charset not in ("", "charset=utf-8"):
        given = headers.get("content-type")
        what = f"is {given[:100]!r}" if given else "is missing"
        raise ApiError(
            415, f"content-type {what}; send `content-type: {JSON}`", code="unsupported_media_type"
        )
    encoding = headers.get("content-encoding", "identity")
    if encoding.lower() != "identity":
        raise ApiError(
            415,
            f"content-encoding is {encoding[:100]!r}; send the body as it is",
            code="unsupported_media_type",
        )


def check_declared(headers: Headers, limit: int) -> None:
    """ApiError (413) when the declared length is above `limit` bytes; 400 when it is none."""
    declared = headers.get("content-length")
    if declared is None:
        return
    if not (declared.isascii() and declared.isdigit()):
        raise ApiError(400, f"content-length {declared[:50]!r} is not a number")
    # Compared by digits first: int() refuses, and needs long for, very many.
    if len(declared) > 19 or int(declared) > limit:
        raise _too_large(limit)


async def read_body(receive: Receive, limit: int, timeout_s: float) -> bytes:
    """The whole body, at most `limit` bytes, within `timeout_s` seconds.

    ApiError: 413 when there is more, 408 when it takes longer. ClientGone."""
    chunks: list[bytes] = []
    receive = bounded_receive(receive, limit)
    try:
        async with asyncio.timeout(timeout_s) as timeout:
            more = True
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientGone
                chunks.append(message.get("body", b""))
                more = message.get("more_body", False)
    except TimeoutError:
        if not timeout.expired():
            raise
        raise ApiError(
            408,
            f"the body did not arrive within {timeout_s:g} s",
            code="body_timeout",
        ) from None
    return b"".join(chunks)


async def disconnected(receive: Receive) -> None:
    """Returns when the client has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass


def bounded_receive(receive: Receive, limit: int) -> Receive:
    """`receive`, raising ApiError (413) once more than `limit` bytes of body have come."""
    size = 0

    async def bounded() -> Message:
        nonlocal size
        message = await receive()
        if message["type"] == "http.request":
            size += len(message.get("body", b""))
            if size > limit:
                raise _too_large(limit)
        return message

    return bounded


def _too_large(limit: int) -> ApiError:
    return ApiError(
        413, f"the body has more than {limit} bytes (serving.max_body_bytes)", code="body_too_large"
    )
