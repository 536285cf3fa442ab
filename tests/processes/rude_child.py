"""A child process that does not keep to what was agreed: `python -m … FD`."""

from __future__ import annotations

import signal
import socket
import struct
import sys
import threading
from typing import Any

import msgspec

from framework.plugins.boot import BootReply
from framework.process.channel import Channel
from framework.process.messages import ParentMessage, Ready, Start, Told

__all__ = ["Rudeness"]


class Rudeness(msgspec.Struct):
    """The payload of its start message."""

    what: str


def _main() -> None:
    sock = socket.socket(fileno=int(sys.argv[1]))
    channel: Channel[Any] = Channel(sock, ParentMessage)
    start = channel.receive()
    assert isinstance(start, Start)
    what = msgspec.msgpack.decode(start.payload, type=Rudeness).what
    if what == "exit":
        sys.exit(3)
    elif what == "garbage":
        sock.sendall(struct.pack("<I", 3) + b"\xc1\xc1\xc1")
    elif what == "huge":
        sock.sendall(struct.pack("<I", (1 << 26) + 1))
    elif what == "hang up":
        channel.close()
    elif what == "told":
        channel.send(Told(payload=b"\x80"))
    elif what == "other plugins":
        reply = BootReply(roles=msgspec.msgpack.decode(start.boot)["roles"], plugins={"x": "1.0"})
        channel.send(Ready(reply=reply.encode()))
    elif what == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        channel.send(Told(payload=b"\x80"))
    threading.Event().wait()


if __name__ == "__main__":
    _main()
