"""What front ends and engine cores tell each other.

A message is the frame of its kind (one byte), then the frames of its body as `codec` makes them.
Two bodies hold a part whose type only the receiver's registry knows (the arguments of a command,
what an engine says of itself): it is decoded in a second stage, from the same frames.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Any, Final, TypeVar

import msgspec

from framework.transport.codec import Buffer, Decoder, Encoder, discard
from framework.transport.tensor_ipc import TensorStore
from hookspecs.errors import TransportError
from hookspecs.types.control import EngineState
from hookspecs.types.outputs import EngineCoreOutputs, UtilityResult
from hookspecs.types.request import EngineCoreRequest, FinishReason
from hookspecs.types.stats import PluginCallStats
from hookspecs.version import PROTOCOL_VERSION

__all__ = [
    "CORE_TO_FRONTEND",
    "FRONTEND_TO_CORE",
    "AbortRequests",
    "EngineDead",
    "Heartbeat",
    "Hello",
    "MessageDecoder",
    "MessageKind",
    "StartWave",
    "UtilityCall",
    "check_protocol",
    "decode_arguments",
    "decode_info",
    "discard_message",
    "encode_hello",
    "encode_message",
    "encode_utility",
]

T = TypeVar("T")


class MessageKind(bytes, Enum):
    """The first frame. With each kind: the type of its body."""

    ADD = b"\x00"
    """list[EngineCoreRequest]"""
    ABORT = b"\x01"
    """AbortRequests"""
    START_DP_WAVE = b"\x02"
    """StartWave"""
    UTILITY = b"\x03"
    """UtilityCall"""
    HELLO = b"\x10"
    """Hello; the first message of an engine core"""
    OUTPUTS = b"\x11"
    """list[EngineCoreOutputs]: of one step or several, in order"""
    UTILITY_RESULT = b"\x12"
    """UtilityResult"""
    HEARTBEAT = b"\x13"
    """Heartbeat"""
    DEAD = b"\x14"
    """EngineDead; the last message of an engine core"""


class AbortRequests(msgspec.Struct, frozen=True):
    """Requests that shall end. Handles that the engine does not know (any more) are ignored."""

    handles: list[int]
    """EngineCoreRequest.handle"""
    reason: FinishReason = FinishReason.ABORT


class StartWave(msgspec.Struct, frozen=True):
    """Data parallel: every replica runs steps until this wave ends."""

    wave: int


class UtilityCall(msgspec.Struct, frozen=True, kw_only=True):
    """A control command."""

    call_id: int
    """The sender's own number; the UtilityResult carries it."""
    name: str
    arguments: msgspec.Raw
    """The command's struct; for `decode_arguments`."""


class Hello(msgspec.Struct, frozen=True, kw_only=True):
    """An engine core is ready. `check_protocol` first: only these two fields never change."""

    protocol: int
    """hookspecs.version.PROTOCOL_VERSION of the sender."""
    engine_index: int
    info: msgspec.Raw
    """For `decode_info`."""


class Heartbeat(msgspec.Struct, frozen=True, kw_only=True):
    """A sign of life, also while the main loop is inside of a step."""

    engine_index: int
    state: EngineState
    step: int
    """Steps that computed something, since start."""
    busy_s: float = 0.0
    """Seconds that the main loop has been inside of its present step or command; 0 when idle."""
    command: str = ""
    """The name of that command; empty for a step."""
    plugin_calls: list[PluginCallStats] = msgspec.field(default_factory=list)


class EngineDead(msgspec.Struct, frozen=True, kw_only=True):
    """The engine core stops after a fatal error."""

    engine_index: int
    error_type: str
    """Name of the exception's class."""
    error: str
    plugin: str | None = None
    """Who caused it, where that is known."""


FRONTEND_TO_CORE: Final = frozenset(
    {MessageKind.ADD, MessageKind.ABORT, MessageKind.START_DP_WAVE, MessageKind.UTILITY}
)
CORE_TO_FRONTEND: Final = frozenset(MessageKind) - FRONTEND_TO_CORE

_BODIES: Final[dict[MessageKind, Any]] = {
    MessageKind.ADD: list[EngineCoreRequest],
    MessageKind.ABORT: AbortRequests,
    MessageKind.START_DP_WAVE: StartWave,
    MessageKind.UTILITY: UtilityCall,
    MessageKind.HELLO: Hello,
    MessageKind.OUTPUTS: list[EngineCoreOutputs],
    MessageKind.UTILITY_RESULT: UtilityResult,
    MessageKind.HEARTBEAT: Heartbeat,
    MessageKind.DEAD: EngineDead,
}
_IN_TWO_STAGES: Final = frozenset({MessageKind.UTILITY, MessageKind.HELLO})


class _Call(msgspec.Struct):
    """UtilityCall as it is written: arguments are encoded in place, with their arrays."""

    call_id: int
    name: str
    arguments: object


class _Greeting(msgspec.Struct):
    """Hello as it is written."""

    protocol: int
    engine_index: int
    info: object


def encode_message(encoder: Encoder, kind: MessageKind, body: object) -> list[Buffer]:
    """The frames of a message; `body` as the kind says."""
    return [kind.value, *encoder.encode(body)]


def encode_utility(encoder: Encoder, call_id: int, name: str, arguments: object) -> list[Buffer]:
    """The frames of a command with its arguments' struct."""
    return encode_message(encoder, MessageKind.UTILITY, _Call(call_id, name, arguments))


def encode_hello(encoder: Encoder, engine_index: int, info: object) -> list[Buffer]:
    """The frames of an engine core's first message."""
    return encode_message(
        encoder, MessageKind.HELLO, _Greeting(PROTOCOL_VERSION, engine_index, info)
    )


class MessageDecoder:
    """Decodes messages of the given kinds. Made once, for one thread.

    kinds: FRONTEND_TO_CORE or CORE_TO_FRONTEND, or some of these
    """

    def __init__(
        self, kinds: Iterable[MessageKind], tensor_store: TensorStore | None = None
    ) -> None:
        self._decoders: dict[bytes, tuple[MessageKind, Decoder[Any]]] = {
            kind.value: (kind, Decoder(_BODIES[kind], tensor_store, head=kind in _IN_TWO_STAGES))
            for kind in kinds
        }

    def decode(self, frames: Sequence[Buffer]) -> tuple[MessageKind, Any]:
        """Kind and body. Raises TransportError for anything else than a message of these kinds."""
        entry = self._decoders.get(bytes(frames[0][:2])) if frames else None
        if entry is None:
            first = bytes(frames[0][:8]).hex() if frames else "missing"
            known = ", ".join(f"{kind.name} {kind.value.hex()}" for kind, _ in self._kinds())
            raise TransportError(f"the first frame of a message is {first}; here it is {known}")
        kind, decoder = entry
        return kind, decoder.decode(frames[1:])

    def _kinds(self) -> list[tuple[MessageKind, Decoder[Any]]]:
        return sorted(self._decoders.values(), key=lambda entry: entry[0].value)


def decode_arguments(decoder: Decoder[T], call: UtilityCall, frames: Sequence[Buffer]) -> T:
    """The arguments of a command, by the decoder of the command's struct.

    frames: the message that `call` was decoded from. A command that is refused without decoding
    its arguments is given to `discard_message`.
    """
    return decoder.decode([call.arguments, *frames[2:]])


def decode_info(decoder: Decoder[T], hello: Hello, frames: Sequence[Buffer]) -> T:
    """What an engine core says of itself, from the message that `hello` was decoded from."""
    return decoder.decode([hello.info, *frames[2:]])


def check_protocol(hello: Hello) -> None:
    """Raises TransportError unless both sides speak the same version of the protocol."""
    if hello.protocol != PROTOCOL_VERSION:
        raise TransportError(
            f"engine core {hello.engine_index} speaks protocol version {hello.protocol}, this "
            f"process version {PROTOCOL_VERSION}; install the same release on both sides"
        )


def discard_message(frames: Sequence[Buffer], tensor_store: TensorStore) -> None:
    """Removes the files of a message that was not sent or not decoded."""
    discard(frames[1:], tensor_store)
