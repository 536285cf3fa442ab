"""The ASGI application. Front-end process, on the event loop of the server: a call that blocks
would hold up every request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from hookspecs.contracts.frontend import HttpRoutes
from hookspecs.errors import (
    CommandError,
    EngineDeadError,
    EngineUnavailableError,
    FrameworkError,
    InvalidRequestError,
)

from queue_dashboard.answer import Answer, Send, json_answer
from queue_dashboard.page import render
from queue_dashboard.status import read_status

__all__ = ["QueueDashboard"]

Receive: TypeAlias = Callable[[], Awaitable[dict[str, Any]]]


class QueueDashboard(HttpRoutes):
    """`/`, `/status.json` and `/reset-prefix-cache`, below the place where it is mounted."""

    def asgi(self) -> Any:
        """The application; it answers the scope `http`, which is all that a server sends."""
        return self._app

    async def _app(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise ValueError(f"the scope {scope['type']!r} is not served")
        method = scope["method"]
        answer = await self._answer("GET" if method == "HEAD" else method, scope)
        await answer.send(send, head=method == "HEAD")

    async def _answer(self, method: str, scope: dict[str, Any]) -> Answer:
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        routes: dict[str, tuple[str, Callable[[dict[str, Any]], Awaitable[Answer]]]] = {
            "/": ("GET", self._page),
            "/status.json": ("GET", self._status),
            "/reset-prefix-cache": ("POST", self._reset_prefix_cache),
        }
        if path not in routes:
            return _error(404, f"there is no {path[:200]!r} here")
        allowed, handler = routes[path]
        if method != allowed:
            allow = "GET, HEAD" if allowed == "GET" else allowed
            return _error(405, f"{path} takes {allow}", ((b"allow", allow.encode()),))
        return await handler(scope)

    async def _page(self, scope: dict[str, Any]) -> Answer:
        body = render(await read_status(self.context.engine)).encode()
        return Answer(content_type="text/html; charset=utf-8", body=body)

    async def _status(self, scope: dict[str, Any]) -> Answer:
        return json_answer(await read_status(self.context.engine))

    async def _reset_prefix_cache(self, scope: dict[str, Any]) -> Answer:
        # A page of another site can make a browser send any other type without being asked.
        if _content_type(scope) != b"application/json":
            return _error(415, "send `content-type: application/json`")
        try:
            result = await self.context.engine.command("reset_prefix_cache", {})
        except FrameworkError as error:
            return _error(_status_of(error), str(error))
        return json_answer({"result": result})


def _content_type(scope: dict[str, Any]) -> bytes:
    given: bytes = dict(scope["headers"]).get(b"content-type", b"")
    return given.partition(b";")[0].strip().lower()


def _status_of(error: FrameworkError) -> int:
    if isinstance(error, InvalidRequestError):
        return 400
    if isinstance(error, CommandError):
        return 409
    if isinstance(error, EngineDeadError | EngineUnavailableError):
        return 503
    return 500


def _error(status: int, message: str, headers: tuple[tuple[bytes, bytes], ...] = ()) -> Answer:
    return json_answer({"error": message}, status, headers)
