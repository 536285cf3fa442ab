"""`EngineLinks`: the sockets of one front end to all of its engine cores.

Front-end process; one thread at a time sends and receives.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeAlias, cast

import zmq

from framework.client.vital_signs import VitalSigns
from framework.core.info import EngineInfo, merged_info
from framework.core.start import FrontEndAddress, engine_identity
from framework.transport.codec import Buffer, Decoder, Encoder
from framework.transport.curve import CurveKeys
from framework.transport.messages import (
    CORE_TO_FRONTEND,
    AbortRequests,
    MessageDecoder,
    MessageKind,
    check_protocol,
    decode_info,
    discard_message,
    encode_message,
    encode_utility,
)
from framework.transport.runtime_dir import RuntimeDir
from framework.transport.sockets import Sockets, bound_address
from framework.transport.tensor_ipc import TensorStore
from hookspecs.config import EngineSection, Transport
from hookspecs.errors import EngineDeadError, TransportError
from hookspecs.types.commands import CommandArguments
from hookspecs.types.outputs import EngineCoreOutputs, UtilityResult
from hookspecs.types.request import EngineCoreRequest, FinishReason
from hookspecs.types.stats import PluginCallStats

__all__ = ["EngineLinks", "Received"]

_LOOK_S: Final = 0.2
"""Between two looks whether a process that is waited for still lives."""

Received: TypeAlias = list[EngineCoreOutputs] | UtilityResult
"""What a caller of `receive` must handle; heartbeats and deaths are handled here."""


class EngineLinks:
    """Typed messages to and from engine cores."""

    def __init__(
        self,
        *,
        client_index: int,
        num_engines: int,
        runtime_dir: RuntimeDir,
        settings: EngineSection,
        curve: CurveKeys | None,
    ) -> None:
        """Binds; see `address`. `curve`: keys of the launch, with tcp."""
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        sockets = Sockets(self._context, max_message_bytes=settings.max_message_bytes, keys=curve)
        tcp = settings.transport is Transport.TCP
        inputs, outputs = (
            "tcp://127.0.0.1:*" if tcp else runtime_dir.address(f"{client_index}-{name}")
            for name in ("inputs", "outputs")
        )
        try:
            self._router = sockets.bind(zmq.ROUTER, inputs)
            self._pull = sockets.bind(zmq.PULL, outputs)
        except BaseException:
            self.close()
            raise
        self.address = FrontEndAddress(
            inputs=bound_address(self._router), outputs=bound_address(self._pull)
        )
        self._tensors = TensorStore(runtime_dir.tensors, prefix=f"front-end-{client_index}")
        self._encoder = Encoder(self._tensors, max_bytes=settings.max_message_bytes)
        self._decoder = MessageDecoder(CORE_TO_FRONTEND, self._tensors)
        self._start_timeout_s = settings.start_timeout_s
        self._identities = [engine_identity(index) for index in range(num_engines)]
        self.vital_signs = [VitalSigns(index, settings) for index in range(num_engines)]

    def wait_for_engines(self) -> EngineInfo:
        """The facts of all engine cores together. EngineDeadError when one is gone, or has not
        connected after `engine.start_timeout_s`; TransportError when one is of another
        version."""
        deadline = time.monotonic() + self._start_timeout_s
        infos: dict[int, EngineInfo] = {}
        while len(infos) < len(self._identities):
            self.check_all_alive()
            left = deadline - time.monotonic()
            if left <= 0:
                raise EngineDeadError("an engine core did not connect in time")
            if not self._router.poll(math.ceil(1000 * min(left, _LOOK_S))):
                continue
            _, *frames = self._router.recv_multipart()
            kind, hello = self._decoder.decode(frames)
            if kind is not MessageKind.HELLO:
                raise TransportError(f"an engine core began with a message of kind {kind.name}")
            check_protocol(hello)
            infos[hello.engine_index] = decode_info(Decoder(EngineInfo), hello, frames)
        for signs in self.vital_signs:
            signs.heard()
        return merged_info([infos[index] for index in range(len(infos))])

    # To engine cores

    def send_requests(self, engine_index: int, requests: Sequence[EngineCoreRequest]) -> None:
        """EngineDeadError when it is gone; TransportError for what has no form as a message."""
        self._send(engine_index, encode_message(self._encoder, MessageKind.ADD, requests))

    def send_abort(self, engine_index: int, handles: Iterable[int], reason: FinishReason) -> None:
        """EngineDeadError when it is gone."""
        message = AbortRequests(handles=list(handles), reason=reason)
        self._send(engine_index, encode_message(self._encoder, MessageKind.ABORT, message))

    def send_command(
        self, engine_index: int, call_id: int, name: str, arguments: CommandArguments
    ) -> None:
        """EngineDeadError when it is gone."""
        self._send(engine_index, encode_utility(self._encoder, call_id, name, arguments))

    def _send(self, engine_index: int, frames: Sequence[Buffer]) -> None:
        try:
            self.check_alive(engine_index)
            self._router.send_multipart(
                [self._identities[engine_index], *frames], zmq.NOBLOCK, copy=False
            )
        except EngineDeadError:
            discard_message(frames, self._tensors)
            raise
        except zmq.ZMQError as error:
            discard_message(frames, self._tensors)
            # Its process ends; how, will be known in a moment.
            raise EngineDeadError(
                f"engine core {engine_index} can not be reached: {error}"
            ) from error

    # From engine cores

    @property
    def descriptor(self) -> int:
        """A file descriptor that becomes readable when something may have come (edge-triggered:
        then `receive` until it returns None)."""
        descriptor = self._pull.getsockopt(zmq.FD)
        assert isinstance(descriptor, int)
        return descriptor

    def receive(self, timeout_s: float = 0.0) -> Received | None:
        """The next message that is the caller's; None when there was none in time."""
        deadline = time.monotonic() + timeout_s if timeout_s else 0.0
        while True:
            frames = self._next_frames()
            if frames is None:
                left_s = deadline - time.monotonic() if timeout_s else 0.0
                if left_s <= 0.0 or not self._pull.poll(math.ceil(1000 * left_s)):
                    return None
                continue
            try:
                kind, body = self._decoder.decode(frames)
                self._check(kind, body)
            except TransportError as error:
                self.lose_all(f"what it sent can not be read: {error}")
                continue
            if kind is MessageKind.OUTPUTS:
                for bundle in body:
                    self.vital_signs[bundle.engine_index].heard()
                return cast(list[EngineCoreOutputs], body)
            if kind is MessageKind.UTILITY_RESULT:
                return cast(UtilityResult, body)
            if kind is MessageKind.HEARTBEAT:
                self.vital_signs[body.engine_index].beat(body)
            elif kind is MessageKind.DEAD:
                # Its own words say more than how its process ended, which may be known before.
                signs = self.vital_signs[body.engine_index]
                signs.death = f"{body.error_type}: {body.error}"
                if body.plugin and body.plugin not in body.error:
                    signs.death += f" (plugin {body.plugin!r})"

    def _next_frames(self) -> list[Buffer] | None:
        """Of the next message; None when there is none."""
        try:
            part = self._pull.recv(zmq.NOBLOCK, copy=False)
            frames: list[Buffer] = [part.buffer]
            while part.more:
                part = self._pull.recv(zmq.NOBLOCK, copy=False)
                frames.append(part.buffer)
        except zmq.Again:
            return None
        return frames

    def _check(self, kind: MessageKind, body: Any) -> None:
        """TransportError for what can be decoded and still not be true."""
        bundles = body if kind is MessageKind.OUTPUTS else ()
        for part in bundles or (body,):
            engine_index = getattr(part, "engine_index", 0)
            if not 0 <= engine_index < len(self.vital_signs):
                raise TransportError(f"it calls itself engine core {engine_index}")
        for bundle in bundles:
            rows = len(bundle.handles)
            counts = bundle.num_tokens.tolist()
            lengths = (len(counts), len(bundle.finish_codes), sum(counts))
            if lengths != (rows, rows, len(bundle.token_ids)):
                raise TransportError(f"columns of a bundle have wrong lengths: {lengths}")

    def plugin_calls(self) -> list[PluginCallStats]:
        """What the plugins in the engine cores did, as last told."""
        return [calls for signs in self.vital_signs for calls in signs.plugin_calls]

    # Life

    def mark_dead(self, engine_index: int, reason: str) -> None:
        """An engine core is gone; the first reason stays."""
        signs = self.vital_signs[engine_index]
        if signs.death is None:
            signs.death = reason

    def check_alive(self, engine_index: int) -> None:
        """EngineDeadError with the reason when an engine core is gone."""
        death = self.vital_signs[engine_index].death
        if death is not None:
            raise EngineDeadError(f"engine core {engine_index} is dead: {death}")

    def check_all_alive(self) -> None:
        """EngineDeadError with the reason when any engine core is gone."""
        for engine_index in range(len(self.vital_signs)):
            self.check_alive(engine_index)

    def lose_all(self, reason: str) -> None:
        """A message that can not be read does not say either whose it is."""
        for engine_index in range(len(self.vital_signs)):
            self.mark_dead(engine_index, reason)

    def close(self) -> None:
        """Close all sockets; safe to call twice. After the engine cores have ended: until then
        they wait to get rid of their last messages."""
        self._context.destroy(linger=0)
