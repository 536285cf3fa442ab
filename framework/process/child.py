"""The child's side: what every process that the kernel starts does first.

It answers on the channel, dies with its parent, and leaves nothing behind.
"""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeAlias

import msgspec
from setproctitle import setproctitle

from framework.plugins.boot import Boot
from framework.process.channel import Channel
from framework.process.exit_codes import ExitCode
from framework.process.messages import (
    Failed,
    Line,
    ParentMessage,
    PeerDied,
    Progress,
    Ready,
    Start,
    Stop,
    Told,
)
from framework.process.remote_error import error_to_send
from framework.transport.runtime_dir import RuntimeDir
from hookspecs.errors import InternalError, TransportError

__all__ = ["Parent", "run_child"]

_PR_SET_PDEATHSIG: Final = 1
logger = logging.getLogger("framework.process")


class Parent:
    """The parent process, as its child sees it."""

    def __init__(self, channel: Channel[ParentMessage], start: Start) -> None:
        self._channel = channel
        self.start = start
        self.boot = Boot.decode(start.boot)
        self.is_ready = False
        self.on_stop: Callable[[Stop], None] = _exit_at_once
        """Called in the thread that listens. Until it is replaced there is nothing to end in an
        orderly way, and a start can not be interrupted otherwise."""
        self.on_peer_died: Callable[[PeerDied], None] = lambda died: None
        """Called in the thread that listens."""

    def report(self, line: str) -> None:
        """A line for the start-up log."""
        self._channel.send(Line(text=line))

    def progress(self, what: str, fraction: float) -> None:
        """`what` is done to `fraction` (0 to 1)."""
        self._channel.send(Progress(what=what, fraction=fraction))

    def tell(self, payload: msgspec.Struct) -> None:
        """Something that the parent waits for."""
        self._channel.send(Told(payload=msgspec.msgpack.encode(payload)))

    def ready(self, reply: bytes) -> None:
        """The child works. `reply`: an encoded BootReply."""
        self.is_ready = True
        self._channel.send(Ready(reply=reply))

    def listen(self) -> None:
        """Hear the parent in a thread of its own; when it is gone, so is this process."""
        threading.Thread(target=self._listen, name="parent", daemon=True).start()

    def _listen(self) -> None:
        while True:
            try:
                message = self._channel.receive()
            except TransportError:
                logger.exception("the channel to the parent process is broken")
                message = None
            try:
                if isinstance(message, Stop):
                    self.on_stop(message)
                elif isinstance(message, PeerDied):
                    self.on_peer_died(message)
            except Exception:  # the parent's death must be heard all the same
                logger.exception("what the parent process said could not be done")
            if message is None:
                try:
                    RuntimeDir.open(Path(self.start.runtime_dir)).remove()
                finally:
                    # Nobody is left to clean up for, and other threads may hang.
                    os._exit(ExitCode.PARENT_DIED)


Run: TypeAlias = Callable[[Parent], ExitCode]


def run_child(run: Run) -> int:
    """Entry point of a child: `python -m MODULE FD`. Returns the exit code.

    `run` calls `Parent.ready` once; what it raises before that is told to the parent.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to act upon
    _wake_when_orphaned()
    channel: Channel[ParentMessage] = Channel(socket.socket(fileno=int(sys.argv[1])), ParentMessage)
    os.set_inheritable(int(sys.argv[1]), False)
    start = channel.receive()
    if start is None:
        return ExitCode.PARENT_DIED
    if not isinstance(start, Start):
        raise InternalError(f"the first message of a parent was {type(start).__name__}, not Start")
    setproctitle(f"framework: {start.name}")
    _log_to_stderr(start.name, start.log_level)
    parent = None
    try:
        parent = Parent(channel, start)
        parent.listen()
        return run(parent)
    except Exception as error:
        if parent is not None and parent.is_ready:
            raise
        channel.send(_failed(error))
        return ExitCode.START_FAILED


def _failed(error: Exception) -> Failed:
    error_type, text = error_to_send(error)
    return Failed(
        error_type=error_type,
        error=text,
        traceback=ascii("".join(traceback.format_exception(error))),
        plugin=getattr(error, "plugin", None),
    )


def _exit_at_once(stop: Stop) -> None:
    os._exit(ExitCode.STOPPED)


def _wake_when_orphaned() -> None:
    """A stopped process can not notice that its parent died: the system continues it then.

    prctl(2); harmless when only the thread that started this process has ended."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGCONT)


def _log_to_stderr(name: str, level: int) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter(f"framework: %(levelname)s: {name}: %(message)s"))
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    logging.getLogger("framework").setLevel(level)
