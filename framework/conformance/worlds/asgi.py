"""A driver of ASGI applications: what a server does for one request, and what it would complain of.

After ASGI 3 and its HTTP message format 2.3, https://asgi.readthedocs.io/en/latest/specs/www.html.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from framework.conformance.worlds.patience import PATIENCE_S
from hookspecs.errors import (
    CommandError,
    EngineUnavailableError,
    FrameworkError,
    RequestError,
)

__all__ = ["Answer", "Asked", "Exchange", "ask", "begin"]

Header = tuple[bytes, bytes]
_CUT: Final = frozenset(b"\r\n\0")


class Asked(NamedTuple):
    """A request."""

    method: str = "GET"
    path: str = "/"
    """Below the mount."""
    query: bytes = b""
    headers: tuple[Header, ...] = ()
    body: tuple[bytes, ...] = (b"",)
    """Pieces."""

    @classmethod
    def read(cls, text: str) -> Asked:
        """`METHOD /path?query`. AssertionError for another form."""
        method, _, target = text.partition(" ")
        path, _, query = target.partition("?")
        assert method.isupper() and path.startswith("/"), (
            f"the example {text!r} is no request; write it as `GET /path?query`"
        )
        return cls(method, path, query.encode())

    def __str__(self) -> str:
        query = f"?{self.query.decode('latin-1')[:60]}" if self.query else ""
        return f"{self.method} {self.path[:80] + query!r}"


@dataclass
class Answer:
    """What came of a request."""

    asked: Asked
    status: int | None = None
    headers: list[Header] = field(default_factory=list)
    body: bytes = b""
    complete: bool = False
    error: BaseException | None = None
    """What left the application."""
    problems: list[str] = field(default_factory=list)
    """Messages that a server would refuse."""

    def fault(self) -> str | None:
        """What the application did wrong. Errors of the engine may leave it before an answer,
        or behind a whole one: the front end knows what to say then."""
        if self.problems:
            return f"{self.asked}: {self.problems[0]}"
        if self.error is not None and not isinstance(self.error, FrameworkError):
            return f"{self.asked}: raised {self.error!r}"
        if self.error is not None:
            if self.status is None or self.complete:
                return None
            return f"{self.asked}: raised {self.error!r} in the middle of its answer"
        if self.status is None:
            return f"{self.asked}: gave no answer"
        if not self.complete:
            return f"{self.asked}: its answer has no end (the last body has more_body)"
        return self._wrong_length()

    def _wrong_length(self) -> str | None:
        for name, value in self.headers:
            if name.lower() == b"content-length" and self.asked.method != "HEAD":
                declared = value.decode("latin-1").strip()
                if declared != str(len(self.body)):
                    return f"{self.asked}: content-length {declared}, {len(self.body)} bytes sent"
        return None

    @property
    def failed(self) -> bool:
        """Whether the server is to blame for it. Of what leaves the application the front end
        knows that the request or the state of the engine is."""
        if self.status is None:
            blameless = (RequestError, CommandError, EngineUnavailableError)
            return not isinstance(self.error, blameless)
        return self.status >= 500 and self.status != 501

    def said(self) -> bytes:
        """All that a client can read."""
        return b"\n".join([*(value for pair in self.headers for value in pair), self.body])


class Exchange:
    """One request under way. Event loop."""

    def __init__(self, app: Any, asked: Asked, root: str) -> None:
        self.answer = Answer(asked)
        self._pieces = list(asked.body)
        self._gone = asyncio.Event()
        self.task = asyncio.create_task(self._run(app, _scope(asked, root)))

    def leave(self) -> None:
        """The client goes away."""
        self._gone.set()

    async def ended(self, seconds: float = PATIENCE_S) -> Answer:
        """Its answer. AssertionError when the application does not end."""
        done, _ = await asyncio.wait({self.task}, timeout=seconds)
        if not done:
            self.task.cancel()
            raise AssertionError(f"{self.answer.asked}: did not end within {seconds:.0f} s")
        return self.answer

    async def _run(self, app: Any, scope: dict[str, Any]) -> None:
        try:
            await app(scope, self._receive, self._send)
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self.answer.error = error

    async def _receive(self) -> dict[str, Any]:
        if self._pieces and not self._gone.is_set():
            piece = self._pieces.pop(0)
            return {"type": "http.request", "body": piece, "more_body": bool(self._pieces)}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: dict[str, Any]) -> None:
        await asyncio.sleep(0)
        answer = self.answer
        wrong = _wrong(message, started=answer.status is not None, complete=answer.complete)
        if wrong is not None:
            answer.problems.append(wrong)
            return
        if message["type"] == "http.response.start":
            answer.status = message["status"]
            answer.headers = [(bytes(n), bytes(v)) for n, v in message.get("headers", ())]
            return
        answer.body += bytes(message.get("body", b""))
        if not message.get("more_body", False):
            answer.complete = True
            self._gone.set()


def begin(app: Any, asked: Asked, *, root: str = "/plugins/conform") -> Exchange:
    """Begin a request in the running loop."""
    return Exchange(app, asked, root)


async def ask(
    app: Any, asked: Asked, *, root: str = "/plugins/conform", seconds: float = PATIENCE_S
) -> Answer:
    """The answer of a request. AssertionError when it does not come."""
    return await begin(app, asked, root=root).ended(seconds)


def _scope(asked: Asked, root: str) -> dict[str, Any]:
    path = root + asked.path
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": asked.method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": asked.query,
        "root_path": root,
        "headers": [(b"host", b"localhost"), *asked.headers],
        "client": ("127.0.0.1", 50000),
        "server": ("127.0.0.1", 8000),
        "state": {},
        "extensions": {},
    }


def _wrong(message: Any, *, started: bool, complete: bool) -> str | None:
    kind = message.get("type") if isinstance(message, dict) else None
    if complete:
        return f"sent {kind!r} after the end of its answer"
    if kind == "http.response.start":
        return "began a second answer" if started else _wrong_start(message)
    if kind != "http.response.body":
        return f"sent {message!r:.200}, which is no message of an answer"
    if not started:
        return "sent a body before the start of an answer"
    body = message.get("body", b"")
    if not isinstance(body, (bytes, bytearray, memoryview)):
        return f"sent {type(body).__name__} as body, not bytes"
    return None


def _wrong_start(message: dict[str, Any]) -> str | None:
    status = message.get("status")
    if not isinstance(status, int):
        return f"its status is {status!r}, no int"
    if not 200 <= status <= 599:
        return f"its status is {status}, which is none of a whole answer"
    for pair in message.get("headers", ()):
        name, value = pair
        if not isinstance(name, bytes) or not isinstance(value, bytes):
            return f"its header {pair!r} is not of bytes"
        if not name or _CUT & {*name, *value}:
            return f"its header {pair!r} would break the head of the answer"
    return None
