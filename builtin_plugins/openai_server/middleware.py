"""What every request passes before it is looked at: request id, CORS, API keys, in this order.

Pure ASGI, so that streams pass through untouched.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import re
import time
import uuid
from collections.abc import Sequence

from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from builtin_plugins.openai_server.errors import ApiError
from builtin_plugins.openai_server.routing import Routes
from builtin_plugins.openai_server.sending import refuse

__all__ = ["ApiKeys", "RequestId", "with_cors"]

REQUEST_ID = "x-request-id"
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,128}", re.ASCII)

logger = logging.getLogger("framework.openai")


class RequestId:
    """Sets `state["request_id"]` and the header of the answer; writes the access log (debug).

    The log has neither query nor headers, since both may hold secrets."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise ValueError(f"the scope {scope['type']!r} is not served")
        given = Headers(scope=scope).get(REQUEST_ID, "")
        request_id = given if _REQUEST_ID.fullmatch(given) else uuid.uuid4().hex
        scope = {**scope, "state": {**scope.get("state", {}), "request_id": request_id}}
        status = 0

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message = {**message, "headers": list(message.get("headers", []))}
                MutableHeaders(scope=message)[REQUEST_ID] = request_id
            await send(message)

        began = time.monotonic()
        try:
            await self._app(scope, receive, send_with_id)
        finally:
            if logger.isEnabledFor(logging.DEBUG):
                seconds = time.monotonic() - began
                what = (scope["method"], scope["path"], status or "no answer", seconds, request_id)
                logger.debug("%s %r: %s after %.3f s, request %s", *what)


class ApiKeys:
    """Lets a request with a key pass; others get 401, also on paths that do not exist."""

    def __init__(
        self, app: ASGIApp, keys: Sequence[str], public: frozenset[str], routes: Routes
    ) -> None:
        self._app = app
        self._digests = [_digest(key.encode()) for key in keys]
        self._public = public
        """Paths that need no key."""
        self._routes = routes
        """For the form of errors."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] in self._public or self._knows(Headers(scope=scope)):
            await self._app(scope, receive, send)
            return
        error = ApiError(
            401,
            "a valid API key is needed: send `Authorization: Bearer KEY` or `x-api-key: KEY`",
            kind="authentication_error",
            code="invalid_api_key",
            headers={"www-authenticate": "Bearer"},
        )
        await refuse(error, self._routes, scope, send)

    def _knows(self, headers: Headers) -> bool:
        """All keys are compared, by digests of one length, so that the time tells nothing. An
        empty one is none."""
        scheme, _, token = headers.get("authorization", "").partition(" ")
        given = [headers["x-api-key"]] if "x-api-key" in headers else []
        if scheme.lower() == "bearer":
            given.append(token.strip())
        known = False
        for key in filter(None, given):
            digest = _digest(key.encode("latin-1"))
            for other in self._digests:
                known |= hmac.compare_digest(digest, other)
        return known


def with_cors(app: ASGIApp, origins: Sequence[str]) -> ASGIApp:
    """Lets pages of these origins call; no credentials besides the key that they send."""
    return CORSMiddleware(
        app,
        allow_origins=list(origins),
        allow_methods=["*"],
        allow_headers=["*"],
        expose_headers=[REQUEST_ID, "retry-after"],
    )


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
