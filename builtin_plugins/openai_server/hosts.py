"""Names under which a server that only this machine can reach may be addressed.

A page of another site can make its own name point to a loopback address, and its scripts may then
read what is answered (DNS rebinding). The `Host` header tells such requests apart.
"""

from __future__ import annotations

import ipaddress
import re

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from builtin_plugins.openai_server.errors import ApiError
from builtin_plugins.openai_server.routing import Routes
from builtin_plugins.openai_server.sending import refuse
from hookspecs.config import ServingConfig

__all__ = ["LoopbackHosts", "checks_hosts", "is_loopback"]

_HOST = re.compile(r"(\[[^\[\]]*\]|[^:\[\]]*)(?::[0-9]*)?", re.ASCII)


def is_loopback(name: str) -> bool:
    """Whether an address or host name is this machine's own by its form: `localhost`,
    127.0.0.0/8, ::1, with or without brackets."""
    if name.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(name.removeprefix("[").removesuffix("]")).is_loopback
    except ValueError:
        return False


def checks_hosts(serving: ServingConfig) -> bool:
    """Whether names matter: with keys a page has none, and a server that other machines reach has
    names that nobody knows here."""
    return not serving.api_keys and is_loopback(serving.host)


class LoopbackHosts:
    """ASGI middleware: 403 unless the request is for a loopback name or `host`, with any port. One
    without a `Host` header passes: browsers always send it."""

    def __init__(self, app: ASGIApp, host: str, routes: Routes) -> None:
        self._app = app
        self._host = host.lower()
        self._routes = routes
        """For the form of errors."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        for given in Headers(scope=scope).getlist("host"):
            if not self._allows(given):
                error = ApiError(
                    403,
                    f"the request is for the host {given[:100]!a}, but a server without API keys "
                    "on a loopback address answers for localhost only; use that name, or set "
                    "serving.api_keys",
                    kind="permission_error",
                    code="host_not_allowed",
                )
                await refuse(error, self._routes, scope, send)
                return
        await self._app(scope, receive, send)

    def _allows(self, given: str) -> bool:
        found = _HOST.fullmatch(given.strip())
        return found is not None and (
            is_loopback(found.group(1)) or found.group(1).lower() == self._host
        )
