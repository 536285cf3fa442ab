"""From a request to the handler of its endpoint, and to an answer whatever happens.

Front-end process, its event loop. Every request ends here: no exception leaves `__call__` but a
cancellation of its own task and an interrupt.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from builtin_plugins.openai_server.body import (
    ClientGone,
    bounded_receive,
    check_declared,
    check_json,
    disconnected,
    read_body,
)
from builtin_plugins.openai_server.endpoint import Call, Endpoint, Service
from builtin_plugins.openai_server.errors import ApiError, as_api_error
from builtin_plugins.openai_server.failures import contained, ends_task
from builtin_plugins.openai_server.json_body import BodyDecoder
from builtin_plugins.openai_server.routing import Routes
from builtin_plugins.openai_server.sending import GRACE_S, Sending
from builtin_plugins.openai_server.time_limit import TimeLimit
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
        sending = Sending(scope, send)
        try:
            await self._answer(scope, receive, sending, request_id)
        except ClientGone:
            logger.debug("request %s: the client went away", request_id)
        except BaseException as error:
            if ends_task(error):
                raise
            if not isinstance(error, (ApiError, FrameworkError)):
                logger.error("request %s failed", request_id, exc_info=error)
            await sending.fail(as_api_error(error), request_id)

    async def _answer(
        self, scope: Scope, receive: Receive, sending: Sending, request_id: str
    ) -> None:
        path, method = scope["path"], scope["method"]
        name, slash, _ = path.removeprefix(MOUNTS).partition("/")
        if path.startswith(MOUNTS) and name in self._mounts:
            if slash:
                await self._mounted(name, scope, receive, sending)
            else:
                await _with_slash(scope)(scope, receive, sending)
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
        limit = TimeLimit(self._service.options.request_timeout_s)
        call = Call(self._service, request, body, request_id, limit)
        response = await limit.within(
            lambda: until_disconnect(_coroutine(endpoint.handler, call), receive)
        )
        await _send(response, limit, scope, receive, sending)

    async def _read(self, endpoint: Endpoint, request: Request, receive: Receive) -> Any:
        if endpoint.body is None:
            return None
        check_json(request.headers)
        limit = self._service.config.serving.max_body_bytes
        check_declared(request.headers, limit)
        data = await read_body(receive, limit, self._service.options.body_timeout_s)
        return self._decoders[endpoint.body].decode(data or b"{}")

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

    async def _mounted(self, name: str, scope: Scope, receive: Receive, sending: Sending) -> None:
        limit = self._service.config.serving.max_body_bytes
        check_declared(Request(scope).headers, limit)
        root = scope.get("root_path", "") + MOUNTS + name
        inner = {**scope, "root_path": root, "app_root_path": root}
        try:
            await self._mounts[name](inner, bounded_receive(receive, limit), sending)
        except ApiError:
            raise  # a bound of this server
        except BaseException as error:
            if ends_task(error):
                raise
            what = f"plugin {name!r} failed at {scope['path']}"
            logger.error("request %s: %s", scope["state"]["request_id"], what, exc_info=error)
            if isinstance(error, FrameworkError):
                raise  # of the engine: it sleeps, the request is wrong, …
            raise ApiError(500, what, kind="server_error", code="plugin_failed") from error
        if not sending.started:
            what = f"plugin {name!r} gave no answer at {scope['path']}"
            logger.error("request %s: %s", scope["state"]["request_id"], what)
            raise ApiError(500, what, kind="server_error", code="plugin_failed")


def _with_slash(scope: Scope) -> Response:
    """To the application of a plugin, whose relative links begin there."""
    query = scope.get("query_string", b"").decode("latin-1")
    path = scope.get("root_path", "") + scope["path"] + "/"
    return RedirectResponse(f"{path}?{query}" if query else path, 307)


async def _send(
    response: Response, limit: TimeLimit, scope: Scope, receive: Receive, sending: Sending
) -> None:
    """A stream ends by itself when the time has passed, if its client reads."""
    until = None if limit.at is None else limit.at + GRACE_S
    try:
        async with asyncio.timeout_at(until) as timeout:
            await response(scope, receive, sending)
    except TimeoutError:
        if not timeout.expired():
            raise
        await sending.cut_off()


async def _coroutine(handler: Callable[[Call[Any]], Awaitable[Response]], call: Call[Any]) -> Any:
    return await contained(lambda: handler(call))


async def until_disconnect(work: Coroutine[Any, Any, T], receive: Receive) -> T:
    """The result of `work`; it is cancelled, and ClientGone raised, when the client goes away."""
    task = asyncio.create_task(work)
    watcher = asyncio.create_task(disconnected(receive))
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
