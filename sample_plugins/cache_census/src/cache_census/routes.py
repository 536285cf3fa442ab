"""The half in the front end: asks all engines by the command, and answers as JSON.

Front-end process, on the event loop of the server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias
from urllib.parse import parse_qs

import msgspec
from hookspecs.contracts.frontend import HttpRoutes
from hookspecs.errors import CommandError, EngineDeadError, FrameworkError, InvalidRequestError

__all__ = ["CensusRoutes"]

Send: TypeAlias = Callable[[dict[str, Any]], Awaitable[None]]

COMMAND_S: Final = 10.0
"""The command waits for the step that runs; who asks should not wait for one that hangs."""


class CensusRoutes(HttpRoutes):
    """`GET /plugins/cache-census/?tenant=a&tenant=b&limit=10`."""

    def asgi(self) -> Any:
        """An ASGI 3 application (https://asgi.readthedocs.io), for the scope `http`."""
        return self._app

    async def _app(self, scope: dict[str, Any], receive: Any, send: Send) -> None:
        status, answer, headers = await self._answer(scope)
        body = msgspec.json.encode(answer)
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            (b"cache-control", b"no-store"),
            *headers,
        ]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if _is_head(scope) else body})

    async def _answer(self, scope: dict[str, Any]) -> tuple[int, Any, list[tuple[bytes, bytes]]]:
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        if path != "/":
            return 404, {"error": f"there is no {path[:200]!r} here"}, []
        if scope["method"] != "GET" and not _is_head(scope):
            return 405, {"error": "it takes GET, HEAD"}, [(b"allow", b"GET, HEAD")]
        try:
            arguments = _arguments(scope.get("query_string", b""))
            async with asyncio.timeout(COMMAND_S):
                result = await self.context.engine.command("cache-census", arguments)
        except TimeoutError:
            return 504, {"error": f"the engines gave no answer within {COMMAND_S:g} s"}, []
        except FrameworkError as error:
            return _status_of(error), {"error": str(error)}, []
        # Several engines answer with a list, one with its own result.
        return 200, {"engines": result if isinstance(result, list) else [result]}, []


def _arguments(query: bytes) -> dict[str, Any]:
    """The command's arguments, of which the engine checks types and bounds. InvalidRequestError
    for what the query itself has wrong."""
    given = parse_qs(query.decode("latin-1"), keep_blank_values=True)
    arguments: dict[str, Any] = {}
    for name, values in given.items():
        if name == "tenant":
            arguments["tenants"] = values
        elif name == "limit" and len(values) == 1 and values[0].isascii() and values[0].isdigit():
            # 18 digits fit a message, and more of them are out of bounds all the same.
            arguments["limit"] = int(values[0].lstrip("0")[:18] or "0")
        else:
            raise InvalidRequestError(
                f"the query has {name[:80]!r} = {values[0][:80]!r}; it takes tenant (a text, as "
                "often as wanted) and limit (a whole number, once)",
                param=name,
            )
    return arguments


def _status_of(error: FrameworkError) -> int:
    if isinstance(error, InvalidRequestError):
        return 400
    if isinstance(error, CommandError):
        return 500  # the engine forbids this command in no state, so it has failed
    if isinstance(error, EngineDeadError):
        return 503
    return 500


def _is_head(scope: dict[str, Any]) -> bool:
    return bool(scope["method"] == "HEAD")
