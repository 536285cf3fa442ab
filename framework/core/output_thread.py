"""The output thread of an engine core process: encodes and sends, and gives signs of life."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
import zmq

from framework.core.engine import EngineCore
from framework.core.extras import without_extras
from framework.plugins.failure import describe
from framework.process.remote_error import printable
from framework.transport.codec import Buffer, Encoder
from framework.transport.messages import EngineDead, Heartbeat, MessageKind, encode_message
from hookspecs.types.outputs import EngineCoreOutputs, UtilityResult
from hookspecs.types.stats import PluginCallStats

__all__ = ["LoopProgress", "OutputThread"]

logger = logging.getLogger("framework.core")
_FLUSH_S: Final = 5.0


class LoopProgress:
    """Where the loop is. Written by the main thread, read by the output thread."""

    __slots__ = ("_began", "_command", "_core")

    def __init__(self, core: EngineCore) -> None:
        self._core = core
        self._began: float | None = None
        self._command = ""

    def begins(self, command: str = "") -> None:
        """A step, or a command, is about to run."""
        self._command, self._began = command, time.monotonic()

    def ends(self) -> None:
        """It has run."""
        self._began = None

    def heartbeat(self, plugin_calls: list[PluginCallStats]) -> Heartbeat:
        """How it is now."""
        began, command = self._began, self._command
        return Heartbeat(
            engine_index=self._core.parts.engine_index,
            state=self._core.state,
            step=self._core.step_count,
            busy_s=0.0 if began is None else time.monotonic() - began,
            command="" if began is None else command,
            plugin_calls=plugin_calls,
        )


class _Item(msgspec.Struct, frozen=True):
    kind: MessageKind
    client_index: int | None
    """None: to all."""
    message: Any = None


class OutputThread:
    """Sends in the order in which it is given messages; never makes the loop wait."""

    def __init__(
        self,
        sockets: Sequence[zmq.Socket[bytes]],
        *,
        listening: Sequence[int],
        progress: LoopProgress,
        plugin_calls: Callable[[], list[PluginCallStats]],
        interval_s: float,
        encoder: Encoder,
        give_up: Callable[[int, list[int]], None],
        failed: Callable[[Exception], None],
    ) -> None:
        """`sockets`: PUSH, by client index, connected. `listening`: clients that get heartbeats
        while nothing happens, too. `interval_s`: between heartbeats. `give_up`: (client index,
        handles) of requests whose outputs can not be sent. `failed`: told of a message that
        can not be sent."""
        self._sockets = sockets
        self._everyone = range(len(sockets))
        self._listening = listening
        self._give_up = give_up
        self._failed = failed
        self._progress = progress
        self._plugin_calls = plugin_calls
        self._interval_s = interval_s
        self._items: queue.SimpleQueue[_Item | None] = queue.SimpleQueue()
        self._encoder = encoder
        self._thread = threading.Thread(target=self._run, name="output", daemon=True)

    def start(self) -> None:
        """Begin to send."""
        self._thread.start()

    def outputs(self, client_index: int, outputs: EngineCoreOutputs) -> None:
        """Any thread; the arrays must not be changed afterwards."""
        self._items.put(_Item(MessageKind.OUTPUTS, client_index, outputs))

    def result(self, client_index: int, result: UtilityResult) -> None:
        """Any thread."""
        self._items.put(_Item(MessageKind.UTILITY_RESULT, client_index, result))

    def heartbeat(self) -> None:
        """Tell the state now, and not with the next interval. Any thread."""
        self._items.put(_Item(MessageKind.HEARTBEAT, None))

    def dead(self, message: EngineDead) -> None:
        """The last message, to all front ends."""
        self._items.put(_Item(MessageKind.DEAD, None, message))

    def close(self) -> None:
        """Send what is left, for a limited time, and end the thread and its sockets."""
        self._items.put(None)
        self._thread.join(_FLUSH_S)

    def _run(self) -> None:
        next_beat, step = time.monotonic(), -1
        while True:
            left_s = next_beat - time.monotonic()
            if left_s <= 0:  # also while there is always something to send
                beat = self._progress.heartbeat(self._plugin_calls())
                clients = self._everyone if beat.step != step else self._listening
                next_beat, step = time.monotonic() + self._interval_s, beat.step
                self._try_to_send(_Item(MessageKind.HEARTBEAT, None, beat), clients)
                continue
            try:
                item = self._items.get(timeout=left_s)
            except queue.Empty:
                continue
            if item is None:
                break
            if item.kind is MessageKind.HEARTBEAT:
                item = _Item(item.kind, None, self._progress.heartbeat(self._plugin_calls()))
            one = item.client_index
            self._try_to_send(item, self._everyone if one is None else (one,))
        for sock in self._sockets:
            sock.close()

    def _try_to_send(self, item: _Item, clients: Sequence[int]) -> None:
        """A failure stops the engine, but not this thread: it has still to say why."""
        try:
            self._send(item, clients)
        except Exception as error:
            logger.critical("a message to a front end can not be sent", exc_info=error)
            self._failed(error)

    def _send(self, item: _Item, clients: Sequence[int]) -> None:
        try:
            frames = encode_message(self._encoder, item.kind, item.message)
        except Exception as error:
            frames = self._unsendable(item, error)
        for client in clients:
            self._sockets[client].send_multipart(frames, copy=False)

    def _unsendable(self, item: _Item, error: Exception) -> list[Buffer]:
        """What plugins made can hold what has no form as a message: the result of a command, the
        text of an error; and what requests asked for can be too much for one."""
        message = item.message
        if isinstance(message, UtilityResult):
            message = UtilityResult(
                call_id=message.call_id,
                error_type="CommandError",
                error=f"it was done, but its result can not be sent: {printable(describe(error))}",
            )
        elif isinstance(message, EngineCoreOutputs):
            message, failed = without_extras(message, printable(describe(error)))
            self._give_up(message.client_index, failed)
        else:
            raise error
        return encode_message(self._encoder, item.kind, message)
