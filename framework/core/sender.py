"""What an engine core process tells its front ends: encoded and sent by whoever has the news.

That is the main thread, after each step: a thread of its own would have to be handed the
interpreter for every message, which costs more than the message. Handing it to zmq does not
wait; zmq's own IO thread writes it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final

import zmq

from framework.core.extras import without_extras
from framework.plugins.failure import describe
from framework.process.remote_error import printable
from framework.transport.codec import Buffer, Encoder
from framework.transport.messages import EngineDead, Heartbeat, MessageKind, encode_message
from hookspecs.types.outputs import EngineCoreOutputs, UtilityResult

__all__ = ["Sender"]

logger = logging.getLogger("framework.core")
_LAST: Final = int(zmq.NOBLOCK)
_MORE: Final = int(zmq.NOBLOCK | zmq.SNDMORE)
"""Flags of frames, put together once: `send_multipart` does it for each frame."""


class Sender:
    """Sends in the order in which it is called. Any thread: the sockets and the encoder are used
    by one at a time, under a lock, which is also the memory fence that zmq's sockets ask for."""

    def __init__(
        self,
        sockets: Sequence[zmq.Socket[bytes]],
        *,
        listening: Sequence[int],
        beat: Callable[[], Heartbeat],
        encoder: Encoder,
        give_up: Callable[[int, list[int]], None],
        failed: Callable[[Exception], None],
    ) -> None:
        """`sockets`: PUSH, by client index, connected. `listening`: clients that get signs of
        life while nothing happens, too. `beat`: how the engine is now. `give_up`: (client index,
        handles) of requests whose outputs can not be sent. `failed`: told of a message that can
        not be sent."""
        self._sockets = sockets
        self._everyone = range(len(sockets))
        self._listening = listening
        self._beat = beat
        self._shown_step = -1
        """Of the last sign of life."""
        self._encoder = encoder
        self._give_up = give_up
        self._failed = failed
        self._lock = threading.RLock()
        self._closed = False

    def outputs(self, client_index: int, bundles: list[EngineCoreOutputs]) -> None:
        """News of requests, of one step or several, in order."""
        self._send(MessageKind.OUTPUTS, bundles, (client_index,))

    def result(self, client_index: int, result: UtilityResult) -> None:
        """The answer to a command."""
        self._send(MessageKind.UTILITY_RESULT, result, (client_index,))

    def state(self) -> None:
        """How the engine is now, to all front ends."""
        self._send_beat(listeners_only=False)

    def sign_of_life(self) -> None:
        """The same; while nothing happens, only to those that listen for it."""
        self._send_beat(listeners_only=True)

    def close(self, last: EngineDead) -> None:
        """Send the last message, to all front ends, and close the sockets; what is sent after
        that is dropped."""
        with self._lock:
            self._send(MessageKind.DEAD, last, self._everyone)
            self._closed = True
            for sock in self._sockets:
                sock.close()

    def _send_beat(self, *, listeners_only: bool) -> None:
        with self._lock:  # of two states the newer is sent last
            try:
                beat = self._beat()
            except Exception as error:
                logger.critical("the state of the engine can not be told", exc_info=error)
                self._failed(error)
                return
            idle = listeners_only and beat.step == self._shown_step
            self._shown_step = beat.step
            self._send(MessageKind.HEARTBEAT, beat, self._listening if idle else self._everyone)

    def _send(self, kind: MessageKind, message: Any, clients: Sequence[int]) -> None:
        """A failure stops the engine, but not this object: it has still to say why."""
        try:
            with self._lock:
                if not self._closed:
                    for frames in self._encode(kind, message):
                        for client in clients:
                            send = self._sockets[client].send
                            for frame in frames[:-1]:
                                send(frame, _MORE, copy=False)
                            send(frames[-1], _LAST, copy=False)
        except Exception as error:
            logger.critical("a message to a front end can not be sent", exc_info=error)
            self._failed(error)

    def _encode(self, kind: MessageKind, message: Any) -> list[list[Buffer]]:
        """The frames of a message, or of each of those that are sent in its place."""
        try:
            return [encode_message(self._encoder, kind, message)]
        except Exception as error:
            if kind is MessageKind.OUTPUTS and len(message) > 1:
                return [frames for one in message for frames in self._encode(kind, [one])]
            return [self._unsendable(kind, message, error)]

    def _unsendable(self, kind: MessageKind, message: Any, error: Exception) -> list[Buffer]:
        """What plugins made can hold what has no form as a message: the result of a command, the
        text of an error; and what requests asked for can be too much for one."""
        if isinstance(message, UtilityResult):
            message = UtilityResult(
                call_id=message.call_id,
                error_type="CommandError",
                error=f"it was done, but its result can not be sent: {printable(describe(error))}",
            )
        elif kind is MessageKind.OUTPUTS:
            bundle, failed = without_extras(message[0], printable(describe(error)))
            self._give_up(bundle.client_index, failed)
            message = [bundle]
        else:
            raise error
        return encode_message(self._encoder, kind, message)
