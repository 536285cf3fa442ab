"""Kinds of messages, commands decoded in two stages, and the version of the protocol."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch

from framework.transport.codec import Buffer, Decoder, Encoder
from framework.transport.messages import (
    CORE_TO_FRONTEND,
    FRONTEND_TO_CORE,
    AbortRequests,
    EngineDead,
    Heartbeat,
    Hello,
    MessageDecoder,
    MessageKind,
    StartWave,
    UtilityCall,
    check_protocol,
    decode_arguments,
    decode_info,
    discard_message,
    encode_hello,
    encode_message,
    encode_utility,
)
from framework.transport.tensor_ipc import TensorStore
from hookspecs.errors import TransportError
from hookspecs.types.commands import Pause, UpdateWeights
from hookspecs.types.control import EngineState, PauseMode
from hookspecs.types.outputs import UtilityResult
from hookspecs.types.request import EngineCoreRequest, FinishReason
from hookspecs.types.sampling import SamplingParams
from hookspecs.types.stats import PluginCallStats
from hookspecs.version import PROTOCOL_VERSION

encoder = Encoder()
at_core = MessageDecoder(FRONTEND_TO_CORE)
at_frontend = MessageDecoder(CORE_TO_FRONTEND)


def received(frames: list[Buffer]) -> list[bytes]:
    return [bytes(frame) for frame in frames]


REQUEST = EngineCoreRequest(
    request_id="r",
    handle=1,
    prompt_token_ids=[1],
    sampling_params=SamplingParams(),
    arrival_time=0.0,
)
CALLS = PluginCallStats(plugin="p", hook="h", process="core-0", calls=1, errors=0, seconds=0.5)


@pytest.mark.parametrize(
    ("kind", "byte", "body"),
    [
        (MessageKind.ADD, 0x00, [REQUEST]),
        (MessageKind.ABORT, 0x01, AbortRequests([1, 2], FinishReason.STOP)),
        (MessageKind.START_DP_WAVE, 0x02, StartWave(4)),
    ],
)
def test_from_front_end_to_core(kind: MessageKind, byte: int, body: object) -> None:
    frames = received(encode_message(encoder, kind, body))
    assert frames[0] == bytes([byte])
    assert at_core.decode(frames) == (kind, body)
    with pytest.raises(TransportError, match="HELLO 10"):
        at_frontend.decode(frames)


@pytest.mark.parametrize(
    ("kind", "byte", "body"),
    [
        (MessageKind.UTILITY_RESULT, 0x12, UtilityResult(call_id=1, result={"a": [1, None]})),
        (MessageKind.UTILITY_RESULT, 0x12, UtilityResult(call_id=1, error_type="E", error="e")),
        (
            MessageKind.HEARTBEAT,
            0x13,
            Heartbeat(engine_index=1, state=EngineState.PAUSED, step=9, plugin_calls=[CALLS]),
        ),
        (MessageKind.DEAD, 0x14, EngineDead(engine_index=0, error_type="E", error="e")),
    ],
)
def test_from_core_to_front_end(kind: MessageKind, byte: int, body: object) -> None:
    frames = received(encode_message(encoder, kind, body))
    assert frames[0] == bytes([byte])
    assert at_frontend.decode(frames) == (kind, body)
    with pytest.raises(TransportError, match="ADD 00"):
        at_core.decode(frames)


@pytest.mark.parametrize("first", [b"", b"\x04", b"\xff", b"\x00\x00", b"\x0f" * 1000])
def test_unknown_kinds(first: bytes) -> None:
    with pytest.raises(TransportError, match="first frame"):
        at_core.decode([first, b"\x90"])


@pytest.mark.parametrize("frames", [[], [b"\x00"], [b"\x03"], [b"\x03", b"\x80"]])
def test_missing_frames(frames: list[bytes]) -> None:
    with pytest.raises(TransportError):
        at_core.decode(frames)


def call_of(frames: list[bytes]) -> UtilityCall:
    kind, call = at_core.decode(frames)
    assert kind is MessageKind.UTILITY
    assert isinstance(call, UtilityCall)
    return call


def test_a_command_is_decoded_in_two_stages() -> None:
    arguments = UpdateWeights(
        tensors={"a": np.ones((30, 40)), "b": torch.ones(3), "c": torch.ones(30, 40)}, version="v"
    )
    frames = received(encode_utility(encoder, 5, "update_weights", arguments))
    assert len(frames) == 4
    call = call_of(frames)
    assert (call.call_id, call.name) == (5, "update_weights")
    back = decode_arguments(Decoder(UpdateWeights), call, frames)
    assert back.version == "v"
    assert back.tensors is not None
    assert back.tensors["a"].shape == (30, 40)
    assert torch.equal(back.tensors["c"], torch.ones(30, 40))


def test_arguments_are_checked_by_the_struct_of_the_command() -> None:
    frames = received(encode_utility(encoder, 5, "pause", Pause(mode=PauseMode.KEEP)))
    call = call_of(frames)
    assert decode_arguments(Decoder(Pause), call, frames) == Pause(mode=PauseMode.KEEP)
    with pytest.raises(TransportError, match="mode"):
        decode_arguments(Decoder(UpdateWeights), call, frames)
    for extra in ([b""], [b"x" * 300]):
        with pytest.raises(TransportError, match="referred to by nothing"):
            decode_arguments(Decoder(Pause), call, [*frames, *extra])
    frames = received(encode_utility(encoder, 5, "update_weights", {"path": np.ones(100)}))
    with pytest.raises(TransportError):
        decode_arguments(Decoder(UpdateWeights), call_of(frames), frames[:-1])


def test_arguments_that_are_not_utf8_are_refused_in_the_second_stage() -> None:
    head = msgspec.msgpack.encode({"call_id": 1, "name": "pause"})
    frames = [b"\x03", b"\x83" + head[1:] + b"\xa9arguments" + b"\x81\xa1\xff\x01"]
    with pytest.raises(TransportError):
        decode_arguments(Decoder(Pause), call_of(frames), frames)


def test_a_refused_command_leaves_no_file(tmp_path: Path) -> None:
    store = TensorStore(tmp_path, prefix="t", min_bytes=1000)
    with_store = MessageDecoder(FRONTEND_TO_CORE, store)
    arguments = UpdateWeights(tensors={"a": np.ones(600), "b": torch.ones(1100)})
    frames = received(encode_utility(Encoder(store), 5, "update_weights", arguments))
    assert len(os.listdir(tmp_path)) == 2
    _, call = with_store.decode(frames)
    assert len(os.listdir(tmp_path)) == 2
    with pytest.raises(TransportError):
        decode_arguments(Decoder(Pause, store), call, frames)
    assert os.listdir(tmp_path) == []

    frames = received(encode_utility(Encoder(store), 5, "update_weights", arguments))
    discard_message(frames, store)
    assert os.listdir(tmp_path) == []


class Info(msgspec.Struct):
    blocks: int
    table: Any


def test_hello_carries_the_version_before_all_else() -> None:
    frames = received(encode_hello(encoder, 3, Info(7, np.ones(100))))
    kind, hello = at_frontend.decode(frames)
    assert kind is MessageKind.HELLO
    check_protocol(hello)
    assert hello.engine_index == 3
    info = decode_info(Decoder(Info), hello, frames)
    assert info.blocks == 7
    assert info.table.shape == (100,)


def test_another_version_is_named_with_ours() -> None:
    hello = Hello(protocol=99, engine_index=2, info=msgspec.Raw(b"\xc0"))
    with pytest.raises(TransportError, match=rf"core 2 .* version 99, .* {PROTOCOL_VERSION};"):
        check_protocol(hello)
