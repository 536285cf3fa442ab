"""What the configuration asks of a front end that speaks HTTP."""

from __future__ import annotations

import asyncio
import socket
from typing import Any, Final

from framework.conformance.subject import Subject
from framework.conformance.suites.frontend.base import FrontendPart
from framework.conformance.worlds.patience import within
from framework.conformance.worlds.served import (
    get,
    in_front_end,
    is_http,
    request_of,
    says,
    serving,
    status_of,
)
from framework.conformance.worlds.servers import run_server

__all__ = ["Routes"]

LIMIT: Final = 4096
"""Bytes of a body."""


class Routes(FrontendPart):
    """Routes of plugins are mounted, behind keys, with bounded bodies; in a server too."""

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
