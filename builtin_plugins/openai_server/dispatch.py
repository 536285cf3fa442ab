"""From a request to the handler of its endpoint, and to an answer whatever happens.

Front-end process, its event loop. Every request ends here: no exception leaves `__call__` but a
cancellation.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from builtin_plugins.openai_server.body import (
    ClientGone,
    bounded_receive,
    check_declared,
    check_json,
    read_body,
)
from builtin_plugins.openai_server.endpoint import Call, Endpoint, Service
from builtin_plugins.openai_server.errors import ApiError, as_api_error
from builtin_plugins.openai_server.json_body import BodyDecoder
from builtin_plugins.openai_server.routing import Routes
from builtin_plugins.openai_server.sending import Sending
from hookspecs.errors import FrameworkError

__all__ = ["MOUNTS", "Dispatcher"]

T = TypeVar("T")
MOUNTS = "/plugins/"

logger = logging.getLogger("framework.openai")


class Dispatcher:
    """The ASGI application behind the middleware, which has set `state["request_id"]`."""

    def __init__(self, service: Service, routes: Routes, mounts: Mapping[str, ASGIApp]) -> None:
        self._service = service
        self._routes = routes
        self._mounts = mounts
        bodies = {endpoint.body for endpoint in routes.endpoints if endpoint.body is not None}
        self._decoders = {body: BodyDecoder(body) for body in bodies}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request_id: str = scope["state"]["request_id"]
        sending = Sending(send, head=scope["method"] == "HEAD")
        try:
            await self._answer(scope, receive, sending, request_id)
        except ClientGone:
            logger.debug("request %s: the client went away", request_id)
        except Exception as error:
            if not isinstance(error, (ApiError, FrameworkError)):
                logger.error("request %s failed", request_id, exc_info=error)
            await sending.fail(as_api_error(error), request_id)

    async def _answer(
        self, scope: Scope, receive: Receive, sending: Sending, request_id: str
    ) -> None:
        path, method = scope["path"], scope["method"]
        name, slash, _ = path.removeprefix(MOUNTS).partition("/")
        if path.startswith(MOUNTS) and slash and name in self._mounts:
            await self._mounted(name, scope, receive, sending)
            return
        found = self._routes.find(path)
        if found is None:
            raise ApiError(404, f"there is no {path[:200]!r} here", code="not_found")
        methods, parameters = found
        sending.error_body = self._routes.error_body(path)
        endpoint = methods.get("GET" if method == "HEAD" else method)
        if endpoint is None:
            await self._other_method(methods, scope, receive, sending)
            return
        request = Request({**scope, "path_params": parameters}, receive)
        body = await self._read(endpoint, request, receive)
        call = Call(self._service, request, body, request_id)
        await self._run(endpoint, call, scope, receive, sending)

    async def _read(self, endpoint: Endpoint, request: Request, receive: Receive) -> Any:
        if endpoint.body is None:
            return None
        check_json(request.headers)
        limit = self._service.config.serving.max_body_bytes
        check_declared(request.headers, limit)
        data = await read_body(receive, limit, self._service.options.body_timeout_s)
        return self._decoders[endpoint.body].decode(data or b"{}")

    async def _run(
        self,
        endpoint: Endpoint,
        call: Call[Any],
        scope: Scope,
        receive: Receive,
        sending: Sending,
    ) -> None:
        limit = self._service.options.request_timeout_s
        try:
            async with asyncio.timeout(limit) as timeout:
                response = await until_disconnect(_coroutine(endpoint.handler, call), receive)
                await response(scope, receive, sending)
        except TimeoutError:
            if not timeout.expired():
                raise
            raise ApiError(
                504,
                f"the request took longer than {limit:g} s",
                kind="timeout_error",
                code="request_timeout",
            ) from None

    async def _other_method(
        self, methods: Mapping[str, Endpoint], scope: Scope, receive: Receive, sending: Sending
    ) -> None:
        allowed = {"OPTIONS", *methods, *(["HEAD"] if "GET" in methods else [])}
        allow = {"allow": ", ".join(sorted(allowed))}
        if scope["method"] == "OPTIONS":
            await Response(status_code=204, headers=allow)(scope, receive, sending)
            return
        raise ApiError(
            405,
            f"{scope['path']} takes {allow['allow']}, not {scope['method'][:50]}",
            code="method_not_allowed",
            headers=allow,
        )

    async def _mounted(self, name: str, scope: Scope, receive: Receive, send: Send) -> None:
        limit = self._service.config.serving.max_body_bytes
        check_declared(Request(scope).headers, limit)
        root = scope.get("root_path", "") + MOUNTS + name
        inner = {**scope, "root_path": root, "app_root_path": root}
        await self._mounts[name](inner, bounded_receive(receive, limit), send)


async def _coroutine(handler: Callable[[Call[Any]], Awaitable[Response]], call: Call[Any]) -> Any:
    return await handler(call)


async def until_disconnect(work: Coroutine[Any, Any, T], receive: Receive) -> T:
    """The result of `work`; it is cancelled, and ClientGone raised, when the client goes away."""
    task = asyncio.create_task(work)
    watcher = asyncio.create_task(_disconnected(receive))
    try:
        await asyncio.wait({task, watcher}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            watcher.result()
            raise ClientGone
        return task.result()
    finally:
        pending = [one for one in (task, watcher) if not one.done()]
        for one in pending:
            one.cancel()
        for result in await asyncio.gather(*pending, return_exceptions=True):
            if isinstance(result, Exception):
                logger.warning("a request failed while it was cancelled", exc_info=result)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
