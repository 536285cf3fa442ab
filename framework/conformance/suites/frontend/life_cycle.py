"""Front ends from their first connection to their cancellation."""

from __future__ import annotations

import asyncio
import os
import socket
from typing import Final

from framework.conformance.subject import Subject
from framework.conformance.suites.frontend.base import FrontendPart
from framework.conformance.worlds.descriptors import open_descriptors
from framework.conformance.worlds.engine_client import Mood
from framework.conformance.worlds.leftovers import Leftovers
from framework.conformance.worlds.served import (
    CLOSE_S,
    in_front_end,
    request_of,
    says,
    serving,
    wait_closed,
)

__all__ = ["LifeCycle"]

STUCK_S: Final = CLOSE_S + 1.0
"""Seconds in which a front end that serves for a moment has ended, or the event loop is blocked."""


class LifeCycle(FrontendPart):
    """A front end serves, closes what is open and leaves nothing."""

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


def _refuse_backlog(sock: socket.socket) -> None:
    """Closes connections that it has not accepted."""
    while True:
        try:
            sock.accept()[0].close()
        except BlockingIOError:
            return
