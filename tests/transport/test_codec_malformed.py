"""Whatever arrives: a TransportError, or an object of the type. Nothing else."""

from __future__ import annotations

import struct
from typing import Any

import hypothesis.strategies as st
import msgspec
import numpy as np
import pytest
import torch
from hypothesis import given, settings

from framework.transport.codec import Buffer, Decoder, Encoder
from framework.transport.messages import (
    CORE_TO_FRONTEND,
    FRONTEND_TO_CORE,
    MessageDecoder,
    MessageKind,
    encode_message,
    encode_utility,
)
from hookspecs.errors import TransportError
from hookspecs.types.columns import Int64Column
from hookspecs.types.outputs import EngineCoreOutputs
from hookspecs.types.request import EngineCoreRequest
from hookspecs.types.sampling import SamplingParams

INLINE, FRAME, FILE = 1, 2, 3
INT64 = 4


class Handles(msgspec.Struct):
    handles: Int64Column


def message(code: int, *shape: int, dtype: int = INT64, frame: int = 0, rest: bytes = b"") -> bytes:
    """A first frame with one array, written by hand."""
    head = struct.pack(f"<BBI{len(shape)}Q", dtype, len(shape), frame, *shape)
    return msgspec.msgpack.encode({"handles": msgspec.msgpack.Ext(code, head + rest)})


GOOD = bytes(range(8)) * 64


def test_the_hand_written_message_is_right() -> None:
    assert Decoder(Handles).decode([message(FRAME, 64, frame=1), GOOD]).handles.shape == (64,)
    assert Decoder(Handles).decode([message(INLINE, 1, rest=b"\1" * 8)]).handles.shape == (1,)


@pytest.mark.parametrize(
    "frames",
    [
        [],
        [b""],
        [message(FRAME, 64, frame=1)[:-1], GOOD],
        [message(FRAME, 64, frame=1) + b"\x00", GOOD],
        [message(FRAME, 64, frame=0), GOOD],
        [message(FRAME, 64, frame=2), GOOD],
        [message(FRAME, 64, frame=2**32 - 1), GOOD],
        [message(FRAME, 63, frame=1), GOOD],
        [message(FRAME, 65, frame=1), GOOD],
        [message(FRAME, 64, frame=1), GOOD, GOOD],
        [message(FRAME, 64, frame=1), *[b""] * 10_000],
        [message(FRAME, 2**63, frame=1), GOOD],
        [message(FRAME, 2**64 - 1, frame=1), GOOD],
        [message(FRAME, 2**61, 2**61, 2**61, frame=1), GOOD],
        [message(INLINE, 0, 2**63)],
        [message(INLINE, 2**62, 0, 2**62)],
        [message(INLINE, 64)],
        [message(INLINE, 1, rest=b"\x00" * 7)],
        [message(INLINE, *[1] * 33, rest=b"\x00" * 8)],
        [message(INLINE, 1, dtype=12, rest=b"\x00" * 2)],  # bfloat16, but no tensor
        [message(INLINE, 1, dtype=13, rest=b"\x00" * 8)],
        [message(INLINE, 1, dtype=0x80 + 13, rest=b"\x00" * 8)],
        [message(INLINE, 1, dtype=0x80 + INT64, rest=b"\x00" * 8)],  # a tensor, but a column
        [message(FILE, 1, rest=b"name")],  # no store here
        [message(0, 1, rest=b"\x00" * 8)],
        [message(4, 1, rest=b"\x00" * 8)],
        [message(127, 1, rest=b"\x00" * 8)],
        [msgspec.msgpack.encode({"handles": msgspec.msgpack.Ext(INLINE, b"")})],
        [msgspec.msgpack.encode({"handles": msgspec.msgpack.Ext(FRAME, b"\x04\x02\0\0\0\0")})],
        [b"\x81\xa7handles\xdd\xff\xff\xff\xff"],
        [b"\xdd\xff\xff\xff\xff"],
        [b"\xdf\xff\xff\xff\xff"],
        [b"\xc9\xff\xff\xff\xff\x01"],
        [b"\x91" * 100_000],
        [b"\x81\xa7handles" + b"\x91" * 100_000],
    ],
)  # fmt: skip
def test_malformed(frames: list[bytes]) -> None:
    for decoder in (Decoder(Handles), Decoder(list[Any])):
        with pytest.raises(TransportError):
            decoder.decode(frames)


@given(st.lists(st.binary(max_size=64), max_size=4))
def test_arbitrary_bytes(frames: list[bytes]) -> None:
    for kinds in (FRONTEND_TO_CORE, CORE_TO_FRONTEND):
        try:
            kind, _ = MessageDecoder(kinds).decode(frames)
        except TransportError:
            continue
        assert kind in kinds
    for decoder in (Decoder(Any), Decoder(Handles), Decoder(EngineCoreOutputs)):
        try:
            decoder.decode(frames)
        except TransportError:
            continue


def valid_messages() -> list[list[Buffer]]:
    encoder = Encoder()
    request = EngineCoreRequest(
        request_id="r",
        handle=7,
        prompt_token_ids=[1, 2, 3],
        sampling_params=SamplingParams(),
        arrival_time=1.0,
        prompt_embeds=torch.ones(3, 40, dtype=torch.bfloat16),
    )
    outputs = EngineCoreOutputs(
        handles=np.arange(64),
        num_tokens=np.ones(64, np.int32),
        token_ids=np.arange(64, dtype=np.int32),
        finish_codes=np.full(64, -1, np.int8),
        timestamp=1.0,
        errors={3: "no"},
    )
    return [
        encode_message(encoder, MessageKind.ADD, [request]),
        encode_message(encoder, MessageKind.OUTPUTS, [outputs]),
        encode_utility(encoder, 1, "update_weights", {"tensors": {"a": np.ones((2, 40))}}),
    ]


VALID = [[bytes(frame) for frame in message] for message in valid_messages()]


@settings(max_examples=300)
@given(st.data())
def test_changed_messages(data: st.DataObject) -> None:
    frames = list(data.draw(st.sampled_from(VALID)))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(frames) - 1))
        frame = bytearray(frames[at])
        change = data.draw(st.sampled_from(["set", "cut", "insert", "drop", "repeat"]))
        place = data.draw(st.integers(0, max(0, len(frame) - 1)))
        if change == "set" and frame:
            frame[place] = data.draw(st.integers(0, 255))
        elif change == "cut":
            del frame[place:]
        elif change == "insert":
            frame[place:place] = data.draw(st.binary(max_size=9))
        elif change == "repeat":
            frames.append(bytes(frame))
        frames[at] = bytes(frame)
        if change == "drop" and len(frames) > 1:
            del frames[at]
    decoder = MessageDecoder(MessageKind)
    try:
        kind, _ = decoder.decode(frames)
    except TransportError:
        return
    assert kind in MessageKind
