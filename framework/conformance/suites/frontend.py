"""Suite of front ends: on a real socket with a pretended engine, and once in a server."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from typing import Any, Final

from framework.conformance.base import Conformance
from framework.conformance.subject import Subject
from framework.conformance.worlds.descriptors import open_descriptors
from framework.conformance.worlds.engine_client import TROUBLES, Mood
from framework.conformance.worlds.leftovers import Leftovers
from framework.conformance.worlds.patience import within
from framework.conformance.worlds.served import (
    CLOSE_S,
    answers_or_closes,
    get,
    in_front_end,
    is_http,
    junk,
    request_of,
    says,
    serving,
    status_of,
    wait_closed,
)
from framework.conformance.worlds.servers import run_server

__all__ = ["FrontendConformance"]

STUCK_S: Final = CLOSE_S + 1.0
"""Seconds in which a front end that serves for a moment has ended, or the event loop is blocked."""
MANY: Final = 20
"""Connections at once."""
LIMIT: Final = 4096
"""Bytes of a body."""
RESET: Final = struct.pack("ii", 1, 0)
"""SO_LINGER: closing the connection breaks it off."""


class FrontendConformance(Conformance):
    """A front end serves until it is cancelled, whatever clients and engines do.

    The example of a provider has `request`: a text that gets an answer on a new connection; it is
    an HTTP request if none is given. Tests of routes, keys and bodies are for front ends that
    answer HTTP with HTTP; others pass them.
    """

    kind = "frontend"

    # Life

    def test_it_serves_until_it_is_cancelled(self, subject: Subject) -> None:
        """Requires nothing.
        Does: lets it serve while clients come and go and another task runs, and cancels it.
        Must: block nothing, not end by itself, and end soon after it was cancelled, with no other
        exception.
        """

        async def work(sock: socket.socket) -> None:
            async with serving(subject, sock) as served:
                for _ in range(3):
                    _, writer = await served.connect()
                    writer.close()
                    await asyncio.sleep(0.01)
                served.check("after clients have come and gone")

        in_front_end(work, "a front end, for it blocks the event loop,", STUCK_S)

    def test_it_answers(self, subject: Subject) -> None:
        """Requires nothing.
        Does: sends the request of the example, or of HTTP, on several connections.
        Must: answer on each of them.
        """

        async def work(sock: socket.socket) -> list[bytes]:
            async with serving(subject, sock) as served:
                connections = [await served.connect(request_of(subject)) for _ in range(3)]
                return [await says(connection) for connection in connections]

        answers = in_front_end(work, "a front end")
        assert all(answers), (
            f"{request_of(subject)!r} got {answers}; if its protocol is not HTTP, name a text that "
            "it answers as request in the table of examples in conform.toml"
        )

    def test_open_connections_are_closed(self, subject: Subject) -> None:
        """Requires nothing.
        Does: cancels it while connections are open that are idle, in the middle of a request,
        half closed, and wait for an engine that never answers.
        Must: close all that it has accepted.
        """

        async def work(sock: socket.socket) -> list[str]:
            async with serving(subject, sock, mood=Mood.SILENT) as served:
                request = request_of(subject)
                open_ = {
                    "is idle": await served.connect(),
                    "has sent half a request": await served.connect(request[: len(request) // 2]),
                    "has sent a request": await served.connect(request),
                    "has closed its half": await served.connect(),
                }
                open_["has closed its half"][1].write_eof()
                await asyncio.sleep(0.1)
                await served.stop()
                _refuse_backlog(sock)
                closed = await asyncio.gather(*map(wait_closed, open_.values()))
                return [name for name, gone in zip(open_, closed, strict=True) if not gone]

        left = in_front_end(work, "a front end")
        assert not left, f"cancelled, it leaves the connection open that {left[0]}"

    def test_nothing_is_left(self, subject: Subject) -> None:
        """Requires nothing.
        Does: lets it serve some clients, cancels it, and does so again.
        Must: leave no task, thread or open file behind, and no request open in the engine.
        """
        leftovers = Leftovers()

        async def work(sock: socket.socket) -> list[str]:
            left, before = [], 0
            for number in range(3):
                async with serving(subject, sock) as served:
                    for _ in range(3):
                        await says(await served.connect(request_of(subject)))
                await asyncio.sleep(0.05)
                tasks = asyncio.all_tasks() - {asyncio.current_task()}
                left = [f"task {task.get_name()!r}" for task in tasks]
                left += [f"call {name!r} of the engine" for name in served.engine.open]
                files = open_descriptors()
                if number == 1:
                    before = files
                elif number == 2 and files > before:
                    left.append(f"{files - before} open files")
            return left

        left = in_front_end(work, "a front end")
        assert not left, f"after serve() has ended there is still: {', '.join(left)}"
        names = leftovers.names()
        assert not names, f"after the event loop has ended there is still: {', '.join(names)}"

    def test_the_socket_is_not_its_own(self, subject: Subject) -> None:
        """Requires nothing.
        Does: lets two front ends serve on one socket, as two processes do, and cancels one.
        Must: leave the socket open and listening, for the other and for the kernel.
        """

        async def work(sock: socket.socket) -> bool:
            async with serving(subject, sock, process_index=1) as other:
                async with serving(subject, sock):
                    await says(await other.connect(request_of(subject)))
                try:
                    os.fstat(sock.fileno())
                    listens = bool(sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
                except OSError:
                    listens = False
                if not listens:
                    return False
                other.check("after another front end on the same socket has ended")
                first = await says(await other.connect(request_of(subject)))
                return bool(first)

        works = in_front_end(work, "two front ends on one socket")
        assert works, (
            "one front end has ended, and the socket serves no longer; take a duplicate of "
            "listen_fd (os.dup), close that, and shut nothing down"
        )

    # Clients

    def test_garbage_harms_nobody(self, subject: Subject, seed: int) -> None:
        """Requires nothing.
        Does: sends bytes that are no request, and breaks connections off in the middle.
        Must: go on serving, and answer the next client as the first.
        """

        async def work(sock: socket.socket) -> tuple[bytes, bytes]:
            async with serving(subject, sock) as served:
                first = await says(await served.connect(request_of(subject)))
                for number, data in enumerate(junk(seed)):
                    _, writer = await served.connect(data)
                    if number % 3 == 0:
                        line: socket.socket = writer.get_extra_info("socket")
                        line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                    if number % 3 != 1:
                        writer.close()
                    await asyncio.sleep(0.005)
                    served.check(f"after it was sent {data[:60]!r}")
                last = await says(await served.connect(request_of(subject)))
                return first, last

        first, last = in_front_end(work, f"a front end that was sent garbage (seed {seed})")
        assert bool(first) == bool(last), (
            f"before garbage a request was answered {first[:60]!r}, after it {last[:60]!r}"
        )

    def test_many_clients_may_come(self, subject: Subject) -> None:
        """Requires nothing.
        Does: opens many connections that send nothing, and asks on one more.
        Must: answer, for none of them waits for another.
        """

        async def work(sock: socket.socket) -> tuple[bytes, bytes]:
            async with serving(subject, sock) as served:
                alone = await says(await served.connect(request_of(subject)))
                for _ in range(MANY):
                    await served.connect()
                crowded = await says(await served.connect(request_of(subject)))
                served.check(f"with {MANY} connections")
                return alone, crowded

        alone, crowded = in_front_end(work, "a front end with many connections")
        assert bool(alone) == bool(crowded), (
            f"alone a request is answered {alone[:60]!r}, with {MANY} idle connections "
            f"{crowded[:60]!r}"
        )

    # Engines

    def test_an_engine_in_trouble_does_not_end_it(self, subject: Subject) -> None:
        """Requires nothing.
        Does: asks while the engine is dead, unavailable, full, refuses, and fails in the middle.
        Must: go on serving, and answer or close the connection: nobody waits for ever.
        """

        async def work(sock: socket.socket) -> str:
            for mood in TROUBLES:
                async with serving(subject, sock, mood=mood) as served:
                    for _ in range(2):
                        connection = await served.connect(request_of(subject))
                        if not await answers_or_closes(connection):
                            return str(mood.value)
                        served.check(f"with an engine that is {mood.value}")
            return ""

        silent = in_front_end(work, "a front end whose engine is in trouble")
        assert not silent, f"a client waits for ever when the engine is {silent}"

    # What the configuration asks of one that speaks HTTP

    def test_routes_are_mounted(self, subject: Subject) -> None:
        """Requires a front end that answers HTTP.
        Does: mounts an application that tells where it is, and one that raises.
        Must: call them below /plugins/<name>/ with that as root_path, answer 404 for another name
        and 500 for one that raises.
        """

        async def work(sock: socket.socket) -> tuple[bytes, list[int]] | None:
            routes = {"conform": _Place(), "broken": _raise}
            async with serving(subject, sock, routes=routes) as served:
                if not await is_http(served):
                    return None
                told = await says(await served.connect(get("/plugins/conform/a/b?c=d")))
                paths = ["/plugins/nobody/a", "/plugins/broken/"]
                others = [await says(await served.connect(get(path))) for path in paths]
                served.check("after an application has raised")
                return told, [status_of(other) for other in others]

        found = in_front_end(work, "a front end with routes")
        if found is not None:
            told, statuses = found
            place = b"[/plugins/conform|/plugins/conform/a/b|c=d]"
            assert place in told, f"the application should tell {place!r}; the answer is {told!r}"
            assert statuses == [404, 500], (
                f"an unknown name is answered {statuses[0]}, an application that raises "
                f"{statuses[1]}; they should be 404 and 500"
            )

    def test_routes_are_behind_keys(self, subject: Subject) -> None:
        """Requires a front end that answers HTTP.
        Does: asks for a route without a key, and with a wrong one, while serving.api_keys names
        one.
        Must: not call the application.
        """

        async def work(sock: socket.socket) -> tuple[int, list[int]] | None:
            place = _Place()
            serving_ = {"api_keys": ["conformance"]}
            routes = {"conform": place}
            async with serving(subject, sock, routes=routes, serving=serving_) as served:
                if not await is_http(served):
                    return None
                statuses = []
                for headers in ("", "authorization: Bearer wrong\r\n", "x-api-key: no\r\n"):
                    asked = get("/plugins/conform/", headers=headers)
                    statuses.append(status_of(await says(await served.connect(asked))))
                return place.calls, statuses

        found = in_front_end(work, "a front end with keys")
        if found is not None:
            calls, statuses = found
            assert calls == 0 and all(400 <= status < 500 for status in statuses), (
                f"without a key a route was called {calls} times; the answers are {statuses}"
            )

    def test_routes_get_bounded_bodies(self, subject: Subject) -> None:
        """Requires a front end that answers HTTP.
        Does: sends a route a body that is larger than serving.max_body_bytes.
        Must: not give the application more than that.
        """

        async def work(sock: socket.socket) -> int | None:
            place = _Place(reads=True)
            serving_ = {"max_body_bytes": LIMIT}
            routes = {"conform": place}
            async with serving(subject, sock, routes=routes, serving=serving_) as served:
                if not await is_http(served):
                    return None
                body = b"x" * (8 * LIMIT)
                await says(await served.connect(get("/plugins/conform/", body)))
                chunk = b"%x\r\n%b\r\n" % (LIMIT, b"x" * LIMIT)
                head = b"POST /plugins/conform/ HTTP/1.1\r\nhost: localhost\r\n"
                coding = b"connection: close\r\ntransfer-encoding: chunked\r\n\r\n"
                await says(await served.connect(head + coding + 8 * chunk + b"0\r\n\r\n"))
                served.check("after a body that is too large")
                return place.most_bytes

        most = in_front_end(work, "a front end that is sent a large body")
        assert most is None or most <= LIMIT, (
            f"an application got {most} bytes of a body, with serving.max_body_bytes {LIMIT}"
        )

    # In a server

    def test_a_server_runs_with_it(self, subject: Subject) -> None:
        """Requires nothing.
        Does: starts a server with an engine in a process of its own, connects, and stops it.
        Must: serve until then, with the engine that the kernel lends.
        """

        async def work() -> bytes:
            async with run_server(subject) as address:
                reader, writer = await asyncio.open_connection(*address)
                answer = await says((reader, writer), request_of(subject))
                writer.close()
                return answer

        answer = within(lambda: asyncio.run(work()), "a server")
        assert answer, f"{request_of(subject)!r} gets no answer from a server"


class _Place:
    """An ASGI application that tells where it is, and counts."""

    def __init__(self, *, reads: bool = False) -> None:
        self.calls = 0
        self.most_bytes = 0
        self._reads = reads

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.calls += 1
        size, more = 0, self._reads
        while more:
            message = await receive()
            size += len(message.get("body", b""))
            self.most_bytes = max(self.most_bytes, size)
            more = message["type"] == "http.request" and message.get("more_body", False)
        query = scope["query_string"].decode()
        body = f"[{scope['root_path']}|{scope['path']}|{query}]".encode()
        headers = [(b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})


async def _raise(scope: Any, receive: Any, send: Any) -> None:
    raise ZeroDivisionError("the conformance kit lets this application fail")


def _refuse_backlog(sock: socket.socket) -> None:
    """Closes connections that it has not accepted."""
    while True:
        try:
            sock.accept()[0].close()
        except BlockingIOError:
            return
