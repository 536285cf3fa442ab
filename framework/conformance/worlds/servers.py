"""Real servers in an event loop: an engine core in a process of its own behind a front end."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from framework.conformance.subject import Subject
from framework.conformance.worlds.asgi import Asked, ask
from framework.conformance.worlds.patience import PATIENCE_S
from framework.launcher.asynchronous import AsyncLaunch
from framework.launcher.front_end import StopSign, run_front_end
from framework.launcher.sync import no_progress
from framework.plugins.construct import import_target
from framework.process.exit_codes import ExitCode
from hookspecs.errors import MissingDependencyError

__all__ = ["Server", "fetch", "listening_socket", "run_server", "server_of"]


class Server(NamedTuple):
    """Where it listens, or the application alone."""

    address: tuple[str, int] | None
    mount: str
    """Path of the application."""
    app: Any = None


def listening_socket() -> socket.socket:
    """At any free port of this machine."""
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    sock.listen(512)
    return sock


@asynccontextmanager
async def run_server(subject: Subject) -> AsyncIterator[tuple[str, int]]:
    """The address of a server with the configured front end, which is stopped as by a signal.
    AssertionError when it ends by itself, or not as one that was stopped."""
    manager, stop, serving = subject.manager(), StopSign(), asyncio.Event()
    engine = await AsyncLaunch(manager, _quiet, no_progress).start()
    try:
        with listening_socket() as sock:
            running = asyncio.create_task(
                run_front_end(
                    engine,
                    manager,
                    listen_fd=sock.fileno(),
                    process_index=0,
                    stop=stop,
                    serving=serving.set,
                )
            )
            started = asyncio.create_task(serving.wait())
            await asyncio.wait({running, started}, return_when=asyncio.FIRST_COMPLETED)
            started.cancel()
            if running.done():
                running.result()
            yield sock.getsockname()
            stop.stop(0.0)
            code = await asyncio.wait_for(running, PATIENCE_S)
            assert code is ExitCode.STOPPED, f"the server ended with {code!r}"
    finally:
        await engine.shutdown()


@asynccontextmanager
async def server_of(subject: Subject) -> AsyncIterator[Server]:
    """One with the HTTP routes of a subject; without its front end where that lacks a package."""
    manager = subject.manager()
    mount = f"/plugins/{subject.name}"
    try:
        import_target(manager.resolve("frontend", manager.config.serving.frontend))
    except MissingDependencyError:
        engine = await AsyncLaunch(manager, _quiet, no_progress).start()
        try:
            made = manager.create("http_routes", subject.provider, engine=engine)
            yield Server(None, mount, made.asgi())
        finally:
            await engine.shutdown()
    else:
        async with run_server(subject) as address:
            yield Server(address, mount)


async def fetch(server: Server, asked: Asked) -> int | None:
    """The status of the answer to a request."""
    if server.address is None:
        return (await ask(server.app, asked, root=server.mount)).status
    reader, writer = await asyncio.open_connection(*server.address)
    try:
        target = server.mount + asked.path + (f"?{asked.query.decode()}" if asked.query else "")
        head = f"{asked.method} {target} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n"
        length = sum(map(len, asked.body))
        writer.write(f"{head}content-length: {length}\r\n\r\n".encode() + b"".join(asked.body))
        answer = await asyncio.wait_for(reader.read(), PATIENCE_S)
    finally:
        writer.close()
    words = answer.split(b" ", 2)
    return int(words[1]) if words[0].startswith(b"HTTP/") and len(words) > 1 else None


def _quiet(line: str) -> None:
    """Nobody reads the start-up log."""
