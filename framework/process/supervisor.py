"""The parent's side: starts children, hears them, and ends them.

Each child has a thread here that reads its channel; the end of the channel is the end of the
child. Launcher process.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

import msgspec

from framework.plugins.boot import Boot, BootReply, compare
from framework.process.channel import Channel
from framework.process.messages import (
    ChildMessage,
    Failed,
    Line,
    ParentMessage,
    Progress,
    Ready,
    Start,
    Stop,
    Told,
)
from framework.process.remote_error import remote_error
from hookspecs.errors import EngineDeadError, FrameworkError, TransportError

__all__ = ["Child", "StartUp", "stop_all", "wait_all_ready"]

_GRACE_S: Final = 5.0
"""From a request to stop to SIGTERM, and from SIGTERM to SIGKILL."""
_TURN_S: Final = 0.05
"""For one of several children that are waited for."""

S = TypeVar("S", bound=msgspec.Struct)
logger = logging.getLogger("framework.process")


class StartUp:
    """What is shown while children start. Called in the thread that waits for them."""

    def __init__(
        self, report: Callable[[str], None], progress: Callable[[str, float], None]
    ) -> None:
        self.report = report
        self.progress = progress


class Child:
    """One child process."""

    def __init__(
        self,
        module: str,
        *,
        name: str,
        index: int,
        boot: Boot,
        payload: msgspec.Struct,
        runtime_dir: str,
        on_exit: Callable[[Child], None],
        pass_fds: Sequence[int] = (),
    ) -> None:
        """Start `python -m MODULE`. `on_exit` is called once, in this child's thread, when it
        was ready and has ended without being asked to."""
        self.name = name
        self.index = index
        self._boot = boot
        self._on_exit = on_exit
        self._inbox: queue.SimpleQueue[ChildMessage | None] = queue.SimpleQueue()
        self._serves = False
        """Ready, and not asked to stop."""
        self.ended = threading.Event()
        encoded = boot.encode()
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                # -P: the working directory is no place to import from, unless it is here, too.
                [sys.executable, "-P", "-m", module, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=2,  # ours may carry answers; whatever a library prints must not be in them
                pass_fds=(theirs.fileno(), *pass_fds),
                env={**os.environ, "PYTHONPATH": _python_path()},
            )
        self._channel: Channel[ChildMessage] = Channel(ours, ChildMessage)
        self._channel.send(
            Start(
                boot=encoded,
                payload=msgspec.msgpack.encode(payload),
                runtime_dir=runtime_dir,
                log_level=logging.getLogger("framework").getEffectiveLevel(),
                name=name,
            )
        )
        threading.Thread(target=self._listen, name=f"{name}-watch", daemon=True).start()

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs; negative: the signal that ended it."""
        return self._process.returncode

    def describe_end(self) -> str:
        """How it ended, for people."""
        code = self.exit_code
        if code is None:
            return f"{self.name} (process {self.pid}) runs"
        if code < 0:
            with contextlib.suppress(ValueError):
                return (
                    f"{self.name} (process {self.pid}) was killed by {signal.Signals(-code).name}"
                )
        return f"{self.name} (process {self.pid}) ended with exit code {code}"

    def told(self, kind: type[S], deadline: float, shown: StartUp) -> S:
        """Wait for what the child tells before it is ready. Raises as `wait_all_ready`."""
        message = self._next(deadline, shown)
        if message is None:
            raise self.is_late()
        if not isinstance(message, Told):
            raise TransportError(f"{self.name} sent {type(message).__name__} too early")
        return msgspec.msgpack.decode(message.payload, type=kind)

    def becomes_ready(self, timeout_s: float, shown: StartUp) -> bool:
        """Wait some time until it works; whether it does. See `wait_all_ready`."""
        message = self._next(time.monotonic() + timeout_s, shown)
        if message is None:
            return False
        if not isinstance(message, Ready):
            raise TransportError(f"{self.name} sent {type(message).__name__} before it was ready")
        compare(self._boot, BootReply.decode(message.reply))
        self._serves = True
        if self.ended.is_set():  # its thread looked before
            raise EngineDeadError(f"{self.describe_end()} right after its start")
        return True

    def is_late(self) -> EngineDeadError:
        """The error for a child that does not come up."""
        return EngineDeadError(
            f"{self.name} was not ready in time (engine.start_timeout_s); what it did last is in "
            "the start-up log"
        )

    def send(self, message: ParentMessage) -> bool:
        """False when it has ended."""
        return self._channel.send(message)

    def stop(self, drain_s: float = 0.0) -> None:
        """Ask it to end; see `stop_all` for the rest."""
        self._serves = False
        self.send(Stop(drain_s=drain_s))

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, if it still runs."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    def _next(self, deadline: float, shown: StartUp) -> ChildMessage | None:
        """What it tells next, besides lines and progress; None when it does not in time."""
        while True:
            try:
                message = self._inbox.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                return None
            if isinstance(message, Line):
                shown.report(message.text)
            elif isinstance(message, Progress):
                shown.progress(message.what, message.fraction)
            elif isinstance(message, Failed):
                raise self._failure(message)
            elif message is None:
                raise EngineDeadError(f"{self.describe_end()} while it started")
            else:
                return message

    def _failure(self, message: Failed) -> FrameworkError:
        logger.debug("%s failed to start:\n%s", self.name, message.traceback)
        return remote_error(
            message.error_type, message.error, plugin=message.plugin, otherwise=EngineDeadError
        )

    def _listen(self) -> None:
        try:
            while (message := self._channel.receive()) is not None:
                self._inbox.put(message)
        except TransportError:
            logger.exception("what %s sent can not be read; it is killed", self.name)
            self._process.kill()
        # The channel is closed: the process has ended, or will at once.
        try:
            self._process.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._channel.close()
        self.ended.set()
        self._inbox.put(None)
        if self._serves:
            self._on_exit(self)


def wait_all_ready(children: Sequence[Child], deadline: float, shown: StartUp) -> None:
    """Wait until all of them work. `deadline`: seconds, monotonic clock.

    Raises the error of whichever fails first, by its class; EngineDeadError when one ends
    without an error or is late; PluginLoadError when its plugins differ.
    """
    waiting = list(children)
    while waiting:
        for child in tuple(waiting):
            if child.becomes_ready(_TURN_S, shown):
                waiting.remove(child)
            elif time.monotonic() >= deadline:
                raise child.is_late()


def stop_all(children: Sequence[Child], drain_s: float = 0.0) -> None:
    """End children: ask, then SIGTERM, then SIGKILL, each for all of them. Returns when all
    have ended. An exception meanwhile (a second Ctrl-C) kills them."""
    try:
        _stop_all(children, drain_s)
    except BaseException:
        for child in children:
            child.signal(signal.SIGKILL)
        raise


def _stop_all(children: Sequence[Child], drain_s: float) -> None:
    for child in children:
        child.stop(drain_s)
    if _all_ended(children, drain_s + _GRACE_S):
        return
    for number in (signal.SIGTERM, signal.SIGKILL):
        for child in children:
            if not child.ended.is_set():
                logger.warning("%s does not stop; sending %s", child.name, number.name)
                child.signal(number)
        if _all_ended(children, _GRACE_S):
            return
    logger.error("processes that could not be ended: %s", [child.pid for child in children])


def _all_ended(children: Sequence[Child], timeout_s: float) -> bool:
    deadline = time.monotonic() + timeout_s
    return all(child.ended.wait(max(0.0, deadline - time.monotonic())) for child in children)


def _python_path() -> str:
    """What this process can import, the child can."""
    return os.pathsep.join(os.path.abspath(entry) for entry in sys.path if entry is not None)
