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
from framework.plugins.failure import describe
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
from framework.transport.runtime_dir import RuntimeDir
from hookspecs.errors import FrameworkError, InternalError, TransportError

__all__ = ["Parent", "run_child"]

_PR_SET_PDEATHSIG: Final = 1
logger = logging.getLogger("framework.process")


class Parent:
    """The parent process, as its child sees it."""

    def __init__(self, channel: Channel[ParentMessage], start: Start) -> None:
        self._channel = channel
        self.start = start
        self.boot = Boot.decode(start.boot)
        self.on_stop: Callable[[Stop], None] = lambda stop: None
        """Called in the thread that listens."""
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
        self._channel.send(Ready(reply=reply))

    def failed(self, error: BaseException) -> None:
        """The child could not start."""
        known = isinstance(error, FrameworkError)
        self._channel.send(
            Failed(
                error_type=type(error).__name__,
                error=str(error) if known else describe(error),
                traceback="".join(traceback.format_exception(error)),
            )
        )

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
            if isinstance(message, Stop):
                self.on_stop(message)
            elif isinstance(message, PeerDied):
                self.on_peer_died(message)
            elif message is None:
                try:
                    RuntimeDir.open(Path(self.start.runtime_dir)).remove()
                finally:
                    # Nobody is left to clean up for, and other threads may hang.
                    os._exit(ExitCode.PARENT_DIED)


Run: TypeAlias = Callable[[Parent], ExitCode]


def run_child(run: Run) -> int:
    """Entry point of a child: `python -m MODULE FD`. Returns the exit code.

    `run` calls `Parent.ready` once; what it raises before that is told to the parent, later
    errors are its own to announce.
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
    try:
        parent = Parent(channel, start)
    except Exception as error:
        channel.send(Failed(error_type=type(error).__name__, error=str(error), traceback=""))
        return ExitCode.START_FAILED
    parent.listen()
    return run(parent)


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
