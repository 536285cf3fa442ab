"""The listening socket, taken before anything that takes time."""

from __future__ import annotations

import socket
import ssl
from typing import Final

from hookspecs.config import ServingConfig
from hookspecs.errors import ConfigError

__all__ = ["check_tls", "listen", "shown_address"]

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


def check_tls(serving: ServingConfig) -> None:
    """ConfigError when the certificate, or its key, can not be used."""
    certificate, key = serving.tls_certificate, serving.tls_key
    if certificate is None:
        if key is not None:
            raise ConfigError(
                "serving.tls_key is given without serving.tls_certificate; give both, or the "
                "certificate alone if its file holds the key"
            )
        return
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key)
    except OSError as error:
        raise ConfigError(
            f"the files of serving.tls_certificate {certificate!r} and serving.tls_key {key!r} "
            f"can not be used: {error}; give readable PEM files that belong together"
        ) from error


def shown_address(sock: socket.socket, serving: ServingConfig) -> str:
    """The URL at which the server answers."""
    scheme = "http" if serving.tls_certificate is None else "https"
    host, port = sock.getsockname()[:2]
    if ":" in host:
        host = f"[{host}]"
    return f"{scheme}://{host}:{port}"
