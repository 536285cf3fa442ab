"""Sockets with the options that all messages between processes need."""

from __future__ import annotations

import os
from typing import Any, Final, Generic, TypeVar

import zmq

from framework.transport.curve import ZAP_DOMAIN, CurveKeys, start_zap_handler
from hookspecs.errors import TransportError

__all__ = ["Sockets", "bound_address"]

SocketT = TypeVar("SocketT", bound="zmq.Socket[Any]")

_KINDS: Final = frozenset({zmq.ROUTER, zmq.DEALER, zmq.PULL, zmq.PUSH})
# What encryption adds to a frame.
_CURVE_BYTES: Final = 64


class Sockets(Generic[SocketT]):
    """Makes sockets of one context: ROUTER, DEALER, PULL and PUSH, on `ipc://` paths, or on
    `tcp://` with CURVE. One a context, used at set-up by one thread; afterwards each socket
    belongs to the thread or event loop that uses it.

    Who owns the context closes the sockets, then terminates it.

    context: a zmq.Context, or a zmq.asyncio.Context for asyncio's sockets
    max_message_bytes: engine.max_message_bytes; a peer that sends a larger frame is disconnected
    keys: needed for tcp
    linger_s: seconds for which a closed socket still sends what was given to it
    """

    def __init__(
        self,
        context: zmq.Context[SocketT],
        *,
        max_message_bytes: int,
        keys: CurveKeys | None = None,
        linger_s: float = 2.0,
    ) -> None:
        self._context = context
        self._max_message_bytes = max_message_bytes
        self._keys = keys
        self._linger_ms = int(linger_s * 1000)
        self._has_zap_handler = False

    def bind(self, kind: int, address: str) -> SocketT:
        """A socket bound to an address; `tcp://127.0.0.1:*` takes a free port, for which see
        `bound_address`. Raises TransportError."""
        socket = self._socket(kind, address)
        try:
            if address.startswith("tcp://"):
                self._serve_curve(socket)
            socket.bind(address)
            if address.startswith("ipc://"):
                os.chmod(address.removeprefix("ipc://"), 0o600)
        except (zmq.ZMQError, OSError) as error:
            socket.close(linger=0)
            raise TransportError(f"{address} can not be bound: {error}") from error
        except TransportError:
            socket.close(linger=0)
            raise
        return socket

    def connect(self, kind: int, address: str, *, identity: bytes | None = None) -> SocketT:
        """A socket connected to an address, whether or not someone is bound there already.

        identity: by which the ROUTER at the other end knows it; 1 to 255 bytes, the first not 0
        """
        socket = self._socket(kind, address)
        try:
            if identity is not None:
                socket.setsockopt(zmq.IDENTITY, identity)
            if address.startswith("tcp://"):
                keys = self._need_keys()
                socket.setsockopt(zmq.CURVE_SERVERKEY, keys.server_public.encode("ascii"))
                socket.setsockopt(zmq.CURVE_PUBLICKEY, keys.client_public.encode("ascii"))
                socket.setsockopt(zmq.CURVE_SECRETKEY, keys.client_secret.encode("ascii"))
            socket.connect(address)
        except zmq.ZMQError as error:
            socket.close(linger=0)
            raise TransportError(f"{address} can not be connected to: {error}") from error
        return socket

    def _socket(self, kind: int, address: str) -> SocketT:
        if kind not in _KINDS:
            raise TransportError(f"socket type {kind} is not ROUTER, DEALER, PULL or PUSH")
        if address.startswith("tcp://"):
            self._need_keys()
        elif not address.startswith("ipc:///"):
            # Abstract names (ipc://@…) have no file permissions.
            raise TransportError(f"{address!r} is neither ipc:// and an absolute path nor tcp://")
        socket = self._context.socket(kind)
        socket.setsockopt(zmq.LINGER, self._linger_ms)
        socket.setsockopt(zmq.MAXMSGSIZE, self._max_message_bytes + _CURVE_BYTES)
        # No limit: a full queue would drop messages or block a loop. What is under way is bounded
        # by the requests that are admitted.
        socket.setsockopt(zmq.SNDHWM, 0)
        socket.setsockopt(zmq.RCVHWM, 0)
        if kind == zmq.ROUTER:
            # Sending to an engine that is not there raises instead of being forgotten.
            socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        return socket

    def _serve_curve(self, socket: SocketT) -> None:
        keys = self._need_keys()
        if not self._has_zap_handler:
            start_zap_handler(self._context, keys)
            self._has_zap_handler = True
        socket.setsockopt(zmq.CURVE_SERVER, 1)
        socket.setsockopt(zmq.CURVE_SECRETKEY, keys.server_secret.encode("ascii"))
        socket.setsockopt(zmq.ZAP_DOMAIN, ZAP_DOMAIN)
        # Without a handler that answers, nobody is accepted.
        socket.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)

    def _need_keys(self) -> CurveKeys:
        if self._keys is None:
            raise TransportError("tcp between processes needs keys: CurveKeys.generate()")
        return self._keys


def bound_address(socket: zmq.Socket[Any]) -> str:
    """The address that a socket is bound to, with the port that it got."""
    endpoint = socket.getsockopt(zmq.LAST_ENDPOINT)
    if not isinstance(endpoint, bytes):
        raise TransportError("the socket is bound to nothing")
    return endpoint.decode("ascii").rstrip("\0")
