"""A front end that serves on a socket of the kit's, and clients that send it bytes.

Event loop. What its protocol is the kit does not know: it sends bytes, and looks at what comes.
"""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, TypeVar

from framework.conformance.subject import Subject
from framework.conformance.worlds.engine_client import Mood, PretendedEngine
from framework.conformance.worlds.patience import PATIENCE_S, within
from framework.conformance.worlds.servers import listening_socket

__all__ = [
    "CLOSE_S",
    "Served",
    "answers_or_closes",
    "get",
    "in_front_end",
    "is_http",
    "junk",
    "request_of",
    "says",
    "serving",
    "status_of",
    "wait_closed",
]

T = TypeVar("T")
CLOSE_S: Final = 5.0
"""Seconds that the kernel waits for a front end that it has cancelled."""
_SILENCE_S: Final = 1.0
"""Seconds without a byte after which a front end that was sent bytes does not answer them."""
Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Served:
    """A front end under way."""

    def __init__(
        self,
        subject: Subject,
        sock: socket.socket,
        *,
        mood: Mood = Mood.WELL,
        routes: Mapping[str, Any] | None = None,
        process_index: int = 0,
        **sections: Any,
    ) -> None:
        self.engine = PretendedEngine(mood=mood)
        self.address: tuple[str, int] = sock.getsockname()
        self.frontend = subject.create(
            sections,
            engine=self.engine,
            listen_fd=sock.fileno(),
            routes=routes or {},
            process_index=process_index,
        )
        self.task: asyncio.Task[None] = asyncio.create_task(self.frontend.serve())
        self._opened: list[asyncio.StreamWriter] = []

    async def connect(self, data: bytes = b"") -> Connection:
        """A new connection, on which `data` is sent."""
        reader, writer = await asyncio.open_connection(*self.address)
        self._opened.append(writer)
        writer.write(data)
        with suppress(OSError):
            await writer.drain()
        return reader, writer

    def check(self, after: str) -> None:
        """AssertionError when it serves no longer."""
        if self.task.done():
            error = None if self.task.cancelled() else self.task.exception()
            raise AssertionError(f"serve() has ended {after}: {error!r}") from error

    async def stop(self) -> None:
        """Cancel it as the kernel does. AssertionError when it does not end, or raises."""
        if not self.task.done():
            self.task.cancel()
            await asyncio.wait({self.task}, timeout=CLOSE_S)
            assert self.task.done(), (
                f"serve() goes on {CLOSE_S:.0f} s after it was cancelled, and the server without it"
            )
            if not self.task.cancelled():
                error = self.task.exception()
                assert error is None, f"cancelled, serve() raised {error!r}"

    def close(self) -> None:
        """The clients leave."""
        for writer in self._opened:
            writer.close()


@asynccontextmanager
async def serving(subject: Subject, sock: socket.socket, **fields: Any) -> AsyncIterator[Served]:
    """One that is stopped at the end; see `Served`."""
    served = Served(subject, sock, **fields)
    try:
        await asyncio.sleep(0.01)
        served.check("before anything was sent")
        yield served
        await served.stop()
    finally:
        served.task.cancel()
        served.close()


def in_front_end(
    work: Callable[[socket.socket], Awaitable[T]], what: str, seconds: float = PATIENCE_S
) -> T:
    """The result of `work`, which gets a listening socket, in an event loop of its own.
    AssertionError when it does not end, as when the loop is blocked."""

    async def live() -> T:
        with listening_socket() as sock:
            sock.setblocking(False)
            return await work(sock)

    return within(lambda: asyncio.run(live()), what, seconds)


async def says(connection: Connection, data: bytes = b"") -> bytes:
    """What it answers to bytes, up to its first pause; empty when it says nothing."""
    reader, writer = connection
    writer.write(data)
    try:
        return await asyncio.wait_for(reader.read(1 << 16), _SILENCE_S)
    except (TimeoutError, OSError):
        return b""


async def answers_or_closes(connection: Connection) -> bool:
    """Whether something comes of what was sent: bytes, or the end of the connection."""
    reader, _ = connection
    try:
        await asyncio.wait_for(reader.read(1), _SILENCE_S)
    except TimeoutError:
        return False
    except OSError:
        return True
    return True


async def wait_closed(connection: Connection) -> bool:
    """Whether the other side closes the connection before long."""
    reader, _ = connection
    try:
        await asyncio.wait_for(reader.read(-1), CLOSE_S)
    except TimeoutError:
        return False
    except OSError:
        return True
    return True


def get(path: str = "/", body: bytes = b"", headers: str = "") -> bytes:
    """An HTTP request whose connection is closed behind the answer; POST if there is a body."""
    method = "POST" if body else "GET"
    head = f"{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{headers}"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body


def request_of(subject: Subject) -> bytes:
    """The example's request, or one of HTTP."""
    given = subject.examples.get("request")
    assert given is None or isinstance(given, str), f"the example's request is {given!r}, no text"
    return get() if given is None else given.encode()


async def is_http(served: Served) -> bool:
    """Whether it answers an HTTP request with HTTP."""
    answer = await says(await served.connect(get()))
    return answer.startswith(b"HTTP/1.")


def status_of(answer: bytes) -> int:
    """Of an HTTP answer; 0 where it is none."""
    words = answer.split(b" ", 2)
    is_answer = words[0].startswith(b"HTTP/") and len(words) > 1 and words[1].isdigit()
    return int(words[1]) if is_answer else 0


def junk(seed: int) -> list[bytes]:
    """What scanners and broken clients send on a connection."""
    rng = random.Random(seed)
    return [
        b"",
        b"\0",
        b"\n" * 1000,
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + rng.randbytes(200),
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET\r\n\r\nGET / HTTP/1.1\r\n",
        b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"GET / HTTP/1.1\r\nhost: a\r\n" + b"a: b\r\n" * 5000,
        b"x" * 300_000,
        b"\xff\xfe" * 10_000,
        *(rng.randbytes(rng.randint(1, 400)) for _ in range(12)),
    ]
