"""Signs of life of an engine core process, also while its main thread is inside of a step."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from framework.core.engine import EngineCore
from framework.transport.messages import Heartbeat
from hookspecs.types.stats import PluginCallStats

__all__ = ["HeartbeatThread", "LoopProgress"]


class LoopProgress:
    """Where the loop is. Written by the main thread, read by the heartbeat thread, too."""

    __slots__ = ("_began", "_command", "_core", "_plugin_calls")

    def __init__(
        self, core: EngineCore, plugin_calls: Callable[[], list[PluginCallStats]] = list
    ) -> None:
        """`plugin_calls`: what plugins did so far; any thread."""
        self._core = core
        self._plugin_calls = plugin_calls
        self._began: float | None = None
        self._command = ""

    def begins(self, command: str = "") -> None:
        """A step, or a command, is about to run."""
        self._command, self._began = command, time.monotonic()

    def ends(self) -> None:
        """It has run."""
        self._began = None

    def heartbeat(self) -> Heartbeat:
        """How it is now."""
        plugin_calls = self._plugin_calls()
        began, command = self._began, self._command
        return Heartbeat(
            engine_index=self._core.parts.engine_index,
            state=self._core.state,
            step=self._core.step_count,
            busy_s=0.0 if began is None else time.monotonic() - began,
            command="" if began is None else command,
            plugin_calls=plugin_calls,
        )


class HeartbeatThread:
    """Gives signs of life at an interval."""

    def __init__(self, sign_of_life: Callable[[], None], interval_s: float) -> None:
        self._sign_of_life = sign_of_life
        self._interval_s = interval_s
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def start(self) -> None:
        """Begin, with the first one."""
        self._thread.start()

    def close(self) -> None:
        """End the thread."""
        self._closing.set()
        self._thread.join()

    def _run(self) -> None:
        self._sign_of_life()
        while not self._closing.wait(self._interval_s):
            self._sign_of_life()
