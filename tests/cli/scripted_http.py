"""A tiny HTTP server with scripted answers, in a thread of the test process."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

__all__ = ["CLOSE", "STALL", "Call", "ScriptedHttp", "answer", "events", "running"]

CLOSE = object()
"""The connection is closed here."""
STALL = object()
"""Nothing more comes."""


@dataclass
class Call:
    """A request that came."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any


Script: TypeAlias = Callable[[Call], Sequence[Any]]
"""Pieces to write: bytes, CLOSE, STALL, or a function to call."""


def answer(body: bytes | Any, *, status: int = 200, kind: str = "application/json") -> list[bytes]:
    """An answer in one piece; what is not bytes becomes JSON."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Length: {len(data)}\r\n\r\n"
    return [head.encode() + data]


def events(*data: Any, done: bool = True) -> list[bytes]:
    """A chunked answer of server-sent events, one a piece."""
    lines = [f"data: {json.dumps(value)}\n\n".encode() for value in data]
    if done:
        lines.append(b"data: [DONE]\n\n")
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
    chunks = [b"%x\r\n%b\r\n" % (len(line), line) for line in lines]
    return [head + b"transfer-encoding: chunked\r\n\r\n", *chunks, b"0\r\n\r\n"]


@dataclass
class ScriptedHttp:
    """The server; `calls` has all that came."""

    script: Script
    url: str = ""
    calls: list[Call] = field(default_factory=list)

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError), writer_of(writer):
            while True:
                call = await _read(reader)
                self.calls.append(call)
                for piece in self.script(call):
                    if piece is CLOSE:
                        return
                    if piece is STALL:
                        await reader.read()  # until the client goes
                        return
                    if callable(piece):
                        piece()
                    else:
                        writer.write(piece)
                        await writer.drain()


@contextlib.contextmanager
def writer_of(writer: asyncio.StreamWriter) -> Iterator[None]:
    """Closes it."""
    try:
        yield
    finally:
        writer.close()


async def _read(reader: asyncio.StreamReader) -> Call:
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    first, *lines = head.strip().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (x.partition(":") for x in lines)}
    data = await reader.readexactly(int(headers.get("content-length", "0")))
    method, path, _ = first.split(" ")
    return Call(method, path, headers, json.loads(data) if data else None)


@contextlib.contextmanager
def running(script: Script) -> Iterator[ScriptedHttp]:
    """A server on a free port of the loopback interface."""
    server = ScriptedHttp(script)
    loop = asyncio.new_event_loop()
    listening = loop.run_until_complete(asyncio.start_server(server.handle, "127.0.0.1", 0))
    server.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield server
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        for task in asyncio.all_tasks(loop):
            task.cancel()
            loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
        listening.close()
        loop.run_until_complete(listening.wait_closed())
        loop.close()
