"""Keys for tcp, and who checks them.

With CURVE (RFC 25, 26) every connection is encrypted and both ends know each other's public key.
The keys of a launch are made at its start and travel to its processes through inherited pipes
only: whoever has the client's key is a process of the launch. The binding end asks the handler
here (ZAP, RFC 27), which accepts that one key.
"""

from __future__ import annotations

import logging
import threading
from typing import Any, Final

import msgspec
import zmq
from zmq.utils import z85

from hookspecs.errors import TransportError

__all__ = ["ZAP_DOMAIN", "CurveKeys", "start_zap_handler"]

logger = logging.getLogger("framework.transport")

ZAP_DOMAIN: Final = b"framework"
_ENDPOINT: Final = "inproc://zeromq.zap.01"
_VERSION: Final = b"1.0"


class CurveKeys(msgspec.Struct, frozen=True, kw_only=True):
    """The key pairs of one launch, as z85 text: of all ends that bind, of all that connect.
    Whoever reads this can take part; it is never logged or written to a file."""

    server_public: str
    server_secret: str
    client_public: str
    client_secret: str

    @classmethod
    def generate(cls) -> CurveKeys:
        """New keys. Raises TransportError if the zmq library was built without CURVE."""
        if not zmq.has("curve"):
            raise TransportError(
                "tcp between processes needs CURVE, and this zmq library was built without it; "
                "set engine.transport to ipc"
            )
        server, client = zmq.curve_keypair(), zmq.curve_keypair()
        return cls(
            server_public=server[0].decode("ascii"),
            server_secret=server[1].decode("ascii"),
            client_public=client[0].decode("ascii"),
            client_secret=client[1].decode("ascii"),
        )

    def __repr__(self) -> str:
        return f"CurveKeys(server_public={self.server_public!r})"


def start_zap_handler(context: zmq.Context[Any], keys: CurveKeys) -> None:
    """Starts the thread that answers for all binding sockets of a context. It ends when the
    context is terminated.

    Raises TransportError if the context has a handler already.
    """
    plain: zmq.Context[zmq.Socket[bytes]] = zmq.Context.shadow(context.underlying)
    socket = plain.socket(zmq.REP)
    try:
        socket.bind(_ENDPOINT)
    except zmq.ZMQError as error:
        socket.close()
        raise TransportError(f"a zmq context has one handler of keys: {error}") from error
    accepted = z85.decode(keys.client_public.encode("ascii"))
    threading.Thread(
        target=_answer, args=(socket, accepted), name="framework-zap", daemon=True
    ).start()


def _answer(socket: zmq.Socket[bytes], accepted: bytes) -> None:
    with socket:
        socket.linger = 0
        try:
            while True:
                socket.send_multipart(_reply(socket.recv_multipart(), accepted))
        except zmq.ContextTerminated:
            return


def _reply(request: list[bytes], accepted: bytes) -> list[bytes]:
    """The answer to: version, request id, domain, address, identity, mechanism, credentials."""
    request_id = request[1] if len(request) > 1 else b""
    right = (
        len(request) == 7
        and request[0] == _VERSION
        and request[2] == ZAP_DOMAIN
        and request[5:] == [b"CURVE", accepted]
    )
    if not right:
        address = request[3].decode("ascii", "replace") if len(request) > 3 else "?"
        logger.warning("a connection from %s was refused: not a process of this launch", address)
    status = [b"200", b"OK", b"launch"] if right else [b"400", b"unknown key", b""]
    return [_VERSION, request_id, *status, b""]
