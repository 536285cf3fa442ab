"""Garbage, crowds, and engines in trouble."""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import Final

from framework.conformance.subject import Subject
from framework.conformance.suites.frontend.base import FrontendPart
from framework.conformance.worlds.engine_client import TROUBLES
from framework.conformance.worlds.served import (
    answers_or_closes,
    in_front_end,
    junk,
    request_of,
    says,
    serving,
)

__all__ = ["Troubles"]

MANY: Final = 20
"""Connections at once."""
RESET: Final = struct.pack("ii", 1, 0)
"""SO_LINGER: closing the connection breaks it off."""


class Troubles(FrontendPart):
    """Neither clients nor an engine bring a front end down."""

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
