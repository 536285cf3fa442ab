"""The listening socket, taken before anything that takes time."""

from __future__ import annotations

import socket
from typing import Final

from hookspecs.config import ServingConfig
from hookspecs.errors import ConfigError

__all__ = ["listen", "shown_address"]

_BACKLOG: Final = 2048


def listen(serving: ServingConfig) -> socket.socket:
    """A TCP socket that listens at `serving.host` and `serving.port`. ConfigError when the
    address is in use, or not this machine's."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            serving.host, serving.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        sock = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ConfigError(
            f"serving.host is {serving.host!r}, which is no address: {error}"
        ) from error
    try:
        # A server that ended a moment ago does not keep the next one from starting.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(_BACKLOG)
    except OSError as error:
        sock.close()
        raise ConfigError(
            f"can not listen at {serving.host}:{serving.port}: {error}. Choose another "
            "serving.port (0: any free one), or stop what uses it"
        ) from error
    return sock


def shown_address(sock: socket.socket, serving: ServingConfig) -> str:
    """The URL at which the server answers."""
    scheme = "http" if serving.tls_certificate is None else "https"
    host, port = sock.getsockname()[:2]
    if ":" in host:
        host = f"[{host}]"
    return f"{scheme}://{host}:{port}"
