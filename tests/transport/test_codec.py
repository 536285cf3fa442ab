"""Frames of objects: what goes round, what is refused on either side."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import msgspec
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis.extra import numpy as hnp

from framework.transport.codec import Decoder, Encoder
from hookspecs.errors import TransportError
from hookspecs.types.columns import BoolColumn, Int32Column, Int64Column
from hookspecs.types.outputs import EngineCoreOutputs, PrefillInfo
from hookspecs.types.request import EngineCoreRequest
from hookspecs.types.sampling import SamplingParams
from hookspecs.types.step import LogprobColumns

INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
NUMPY = ["bool", *INTEGERS, "float16", "float32", "float64"]
TORCH = [getattr(torch, name) for name in [*NUMPY, "bfloat16"]]
SHAPES = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=12)

encoder = Encoder()
anything: Decoder[Any] = Decoder(Any)


def round_trip(obj: object) -> Any:
    return anything.decode(encoder.encode(obj))


@given(hnp.arrays(st.sampled_from(NUMPY), SHAPES))
def test_arrays_come_back_equal_and_read_only(array: np.ndarray[Any, Any]) -> None:
    back = round_trip({"a": array})["a"]
    assert (back.dtype, back.shape) == (array.dtype, array.shape)
    assert back.tobytes() == array.tobytes()
    assert not back.flags.writeable


@given(st.sampled_from(TORCH), SHAPES, st.randoms(use_true_random=False))
def test_tensors_come_back_as_tensors(
    dtype: torch.dtype, shape: tuple[int, ...], random: Any
) -> None:
    tensor = torch.tensor(random.choices(range(100), k=int(np.prod(shape))))
    tensor = tensor.reshape(shape).to(dtype)
    back = round_trip([tensor])[0]
    assert isinstance(back, torch.Tensor)
    assert (back.dtype, back.shape) == (tensor.dtype, tensor.shape)
    assert torch.equal(back, tensor)
    assert back.is_contiguous()


def test_a_received_tensor_owns_its_memory() -> None:
    frames = encoder.encode([torch.zeros(1000)])
    back = anything.decode(frames)[0]
    back += 1
    assert anything.decode(frames)[0].sum() == 0


def test_views_of_tensors_and_parameters_are_sent_as_what_they_show() -> None:
    base = torch.arange(600.0).reshape(20, 30)
    parameter = torch.nn.Parameter(base.clone())
    views = [base.T, base[::2, 1::3], parameter]
    for back, view in zip(round_trip(views), views, strict=True):
        assert torch.equal(back, view.detach())


def test_views_of_arrays_are_sent_as_what_they_show() -> None:
    base = np.arange(600.0).reshape(20, 30)
    views = [base.T, base[::2, 1::3], base[::-1], np.asfortranarray(base), base[3:3]]
    for back, view in zip(round_trip(views), views, strict=True):
        assert np.array_equal(back, view)


def test_arrays_of_4096_bytes_are_frames_in_place() -> None:
    large, small = np.arange(512, dtype=np.int64), np.arange(511, dtype=np.int64)
    frames = encoder.encode([large, small])
    assert len(frames) == 2
    assert np.shares_memory(np.frombuffer(frames[1], np.int64), large)
    received = [bytes(frames[0]), bytes(frames[1])]
    back = anything.decode(received)
    assert np.shares_memory(back[0], np.frombuffer(received[1], np.int64))


def test_an_unaligned_frame_is_copied() -> None:
    frames = encoder.encode([np.arange(600, dtype=np.int64)])
    shifted = memoryview(b"x" + bytes(frames[1]))[1:]
    back = anything.decode([frames[0], shifted])[0]
    assert back.flags.aligned
    assert not back.flags.writeable
    assert back.tolist() == list(range(600))


@pytest.mark.parametrize(
    "value",
    [
        np.array([object()]),
        np.zeros(3, ">i4"),
        np.zeros(3, "complex64"),
        np.zeros(3, "datetime64[s]"),
        np.zeros(3, "U4"),
        np.zeros(3, [("a", "i4")]),
        np.ma.masked_array([1, 2], [True, False]),
        np.zeros((1,) * 40),
        np.float32(1),
        torch.zeros(2, dtype=torch.complex64),
        torch.zeros(2, 2).to_sparse(),
        torch.zeros(2, device="meta"),
        object(),
        test_an_unaligned_frame_is_copied,
        2**70,
        "\ud800",
    ],
    ids=lambda value: f"{type(value).__name__}-{getattr(value, 'dtype', '')}",
)
def test_what_can_not_be_sent_is_refused(value: object) -> None:
    with pytest.raises(TransportError):
        encoder.encode([value])


def test_a_circle_is_refused() -> None:
    circle: list[Any] = []
    circle.append(circle)
    with pytest.raises(TransportError):
        encoder.encode(circle)


def test_a_message_above_the_limit_is_refused_before_it_is_sent() -> None:
    limited = Encoder(max_bytes=1000)
    assert limited.encode([np.zeros(100)])
    with pytest.raises(TransportError, match="max_message_bytes"):
        limited.encode([np.zeros(125)])
    assert limited.encode([np.zeros(100)])


def outputs(rows: int) -> EngineCoreOutputs:
    return EngineCoreOutputs(
        handles=np.arange(rows, dtype=np.int64),
        num_tokens=np.ones(rows, np.int32),
        token_ids=np.arange(rows, dtype=np.int32),
        finish_codes=np.full(rows, -1, np.int8),
        timestamp=1.5,
        prefills={0: PrefillInfo(5, 4, 1.0, 2.0)},
        pooled={1: np.ones(64, np.float32)},
        prompt_logprobs={
            2: [
                LogprobColumns(
                    counts=np.ones(rows, np.int32),
                    token_ids=np.ones(rows, np.int32),
                    logprobs=np.full(rows, -0.5, np.float32),
                    ranks=np.ones(rows, np.int32),
                )
            ]
        },
    )


@pytest.mark.parametrize("rows", [0, 3, 256, 1500])
def test_outputs_come_back_as_their_type(rows: int) -> None:
    back = Decoder(EngineCoreOutputs).decode(encoder.encode(outputs(rows)))
    assert back.rows() == outputs(rows).rows()
    assert back.prefills == {0: PrefillInfo(5, 4, 1.0, 2.0)}
    assert back.pooled[1].tolist() == [1.0] * 64
    assert back.prompt_logprobs[2][0].logprobs.tolist() == [-0.5] * rows
    assert back.logprobs is None


def test_requests_with_embeds_of_either_library() -> None:
    requests = [
        EngineCoreRequest(
            request_id=f"r{i}",
            handle=i,
            prompt_token_ids=[1] * 4,
            sampling_params=SamplingParams(seed=2**64 - 1, logit_bias={3: 1.0}),
            arrival_time=0.5,
            prompt_embeds=embeds,
        )
        for i, embeds in enumerate(
            [np.ones((4, 100), np.float32), torch.ones(4, 100, dtype=torch.bfloat16)]
        )
    ]
    first, second = Decoder(list[EngineCoreRequest]).decode(encoder.encode(requests))
    assert first.prompt_embeds.shape == (4, 100)
    assert torch.equal(second.prompt_embeds, requests[1].prompt_embeds)
    assert second.sampling_params == requests[1].sampling_params


class Columns(msgspec.Struct):
    tokens: Int32Column
    flags: BoolColumn | None = None


@pytest.mark.parametrize(
    "tokens",
    [
        np.zeros(3, np.int64),
        np.zeros((3, 1), np.int32),
        np.zeros((), np.int32),
        torch.zeros(3, dtype=torch.int32),
        [1, 2, 3],
        None,
        b"\x00" * 12,
    ],
)
def test_a_column_has_its_dtype_and_one_dimension(tokens: Any) -> None:
    with pytest.raises(TransportError, match="tokens"):
        Decoder(Columns).decode(encoder.encode({"tokens": tokens}))


def test_a_type_without_a_decoder_is_refused() -> None:
    with pytest.raises(TransportError):
        Decoder(list[complex]).decode(encoder.encode([1]))


def test_a_bool_column_holds_zeros_and_ones() -> None:
    frames = encoder.encode(Columns(np.zeros(1, np.int32), np.ones(5000, np.bool_)))
    assert Decoder(Columns).decode(frames).flags is not None
    with pytest.raises(TransportError, match="0 and 1"):
        Decoder(Columns).decode([frames[0], b"\x02" * 5000])


class Handles(msgspec.Struct):
    handles: Int64Column


def test_a_decoder_works_after_an_error() -> None:
    decoder, frames = Decoder(Handles), encoder.encode(Handles(np.arange(600)))
    for wrong in ([], frames[:1], [*frames, b""], [frames[0], frames[1][:-8]]):
        with pytest.raises(TransportError):
            decoder.decode(wrong)
    assert decoder.decode(frames).handles.tolist() == list(range(600))


class RequestHandle(msgspec.Struct):
    handle: int


def test_a_head_leaves_the_arrays_of_other_fields_alone() -> None:
    frames = encoder.encode([{"handle": 4, "prompt_embeds": np.ones((3, 400))}])
    assert Decoder(list[RequestHandle], head=True).decode(frames) == [RequestHandle(4)]
    with pytest.raises(TransportError, match="referred to by nothing"):
        Decoder(list[RequestHandle]).decode(frames)
