"""The input thread of an engine core process: messages of front ends to what the loop works on.

What costs time and concerns one request alone (decoding, block hashing) happens here, beside the
step. What is wrong with one request answers that request only.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
from collections.abc import Callable, Sequence
from typing import Annotated, Final, TypeAlias

import msgspec
import zmq
from msgspec import Meta

from framework.core.commands import COMMANDS
from framework.core.request import Request
from framework.plugins.failure import describe
from framework.transport.codec import Decoder
from framework.transport.messages import (
    FRONTEND_TO_CORE,
    AbortRequests,
    MessageDecoder,
    MessageKind,
    StartWave,
    UtilityCall,
    decode_arguments,
    discard_message,
)
from framework.transport.tensor_ipc import TensorStore
from hookspecs.errors import TransportError
from hookspecs.types.commands import CommandArguments
from hookspecs.types.outputs import UtilityResult
from hookspecs.types.request import EngineCoreRequest

__all__ = [
    "Abort",
    "Add",
    "Call",
    "ExecutorFailed",
    "Input",
    "InputThread",
    "StopRequested",
    "ThreadFailed",
    "Wave",
]

logger = logging.getLogger("framework.core")

_CLOSE: Final = b"close"


class Add(msgspec.Struct, frozen=True):
    """Requests, ready for the engine core."""

    requests: list[Request]


class Abort(msgspec.Struct, frozen=True):
    """A front end gives requests up."""

    client_index: int
    message: AbortRequests


class Call(msgspec.Struct, frozen=True):
    """A control command of a front end."""

    client_index: int
    call_id: int
    arguments: CommandArguments


class Wave(msgspec.Struct, frozen=True):
    """A wave of data-parallel engines starts."""

    message: StartWave


class ExecutorFailed(msgspec.Struct, frozen=True):
    """The executor lost a worker."""

    reason: str


class StopRequested(msgspec.Struct, frozen=True):
    """The process is to end, after `drain_s` seconds at the latest."""

    drain_s: float


class ThreadFailed(msgspec.Struct, frozen=True):
    """One of the threads beside the loop has ended: without it the engine core is deaf, or
    mute."""

    error: Exception


Input: TypeAlias = Add | Abort | Call | Wave | ExecutorFailed | StopRequested | ThreadFailed
"""What wakes the loop."""


class _Head(msgspec.Struct):
    """What is needed to answer a request that can not be read."""

    handle: Annotated[int, Meta(ge=0, le=2**63 - 1)]


class InputThread:
    """Reads the sockets of all front ends."""

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        sockets: Sequence[zmq.Socket[bytes]],
        inputs: queue.SimpleQueue[Input],
        *,
        prepare: Callable[[EngineCoreRequest], Request],
        refuse: Callable[[int, int, str], None],
        answer: Callable[[int, UtilityResult], None],
        failed: Callable[[Exception], None],
        tensors: TensorStore,
    ) -> None:
        """`sockets`: DEALER, by client index, connected. `prepare`: makes the engine's own form
        of a request; thread-safe. `refuse`: (client index, handle, why) ends a request that
        can not be prepared. `answer`: the result of a command that can not be called.
        `failed`: told what has ended the thread."""
        self._context = context
        self._sockets = sockets
        self._inputs = inputs
        self._prepare = prepare
        self._refuse = refuse
        self._answer = answer
        self._failed = failed
        self._decoder = MessageDecoder(FRONTEND_TO_CORE, tensors)
        self._heads = Decoder(list[_Head], tensors, head=True)
        self._arguments = {
            name: Decoder(command.arguments, tensors) for name, command in COMMANDS.items()
        }
        self._tensors = tensors
        self._closer = context.socket(zmq.PAIR)
        self._closer.bind(f"inproc://input-{id(self)}")
        self._thread = threading.Thread(target=self._run, name="input", daemon=True)

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def close(self) -> None:
        """End the thread, which closes its sockets. Main thread."""
        with contextlib.suppress(zmq.Again):  # it has ended
            self._closer.send(_CLOSE, zmq.NOBLOCK)
        self._thread.join()
        self._closer.close(linger=0)

    def _run(self) -> None:
        closed = self._context.socket(zmq.PAIR)
        closed.connect(f"inproc://input-{id(self)}")
        poller = zmq.Poller()
        poller.register(closed, zmq.POLLIN)
        clients = {}
        for client, sock in enumerate(self._sockets):
            poller.register(sock, zmq.POLLIN)
            clients[sock] = client
        try:
            while True:
                ready = dict(poller.poll())
                if closed in ready:
                    return
                for sock in ready:
                    self._take(clients[sock], sock)
        except Exception as error:
            self._failed(error)
        finally:
            closed.close(linger=0)
            for sock in self._sockets:
                sock.close()

    def _take(self, client: int, sock: zmq.Socket[bytes]) -> None:
        frames = [frame.buffer for frame in sock.recv_multipart(copy=False)]
        try:
            message = self._read(client, frames)
        except TransportError:
            logger.exception("a message of front end %d can not be read and is dropped", client)
        else:
            if message is not None:
                self._inputs.put(message)

    def _read(self, client: int, frames: list[memoryview]) -> Input | None:
        try:
            kind, body = self._decoder.decode(frames)
        except TransportError as error:
            if bytes(frames[0]) != MessageKind.ADD:
                raise
            for head in self._heads.decode(frames[1:]):
                self._refuse(client, head.handle, f"the request can not be read: {error}")
            return None
        if kind is MessageKind.ADD:
            return self._prepared(client, body)
        if kind is MessageKind.UTILITY:
            return self._call(client, body, frames)
        return Abort(client, body) if kind is MessageKind.ABORT else Wave(body)

    def _prepared(self, client: int, wires: list[EngineCoreRequest]) -> Add | None:
        prepared = []
        for wire in wires:
            wire.client_index = client
            try:
                prepared.append(self._prepare(wire))
            except Exception as error:
                logger.warning("request %r can not be prepared", wire.request_id, exc_info=error)
                self._refuse(client, wire.handle, describe(error))
        return Add(prepared) if prepared else None

    def _call(self, client: int, call: UtilityCall, frames: list[memoryview]) -> Call | None:
        decoder = self._arguments.get(call.name)
        try:
            if decoder is not None:
                return Call(client, call.call_id, decode_arguments(decoder, call, frames))
            error = f"there is no command {call.name!r}; there are {', '.join(self._arguments)}"
            discard_message(frames, self._tensors)
        except TransportError as wrong:
            error = f"{call.name}: {wrong}"
        self._answer(
            client,
            UtilityResult(call_id=call.call_id, error_type="InvalidRequestError", error=error),
        )
        return None
