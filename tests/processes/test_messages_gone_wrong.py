"""What an engine core does with messages that are wrong, and with answers it can not send."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
import pytest

from framework.client.calls import result_of
from framework.transport.codec import Encoder
from framework.transport.messages import MessageKind, encode_message, encode_utility
from hookspecs.errors import CommandError, EngineDeadError, InvalidRequestError, TransportError
from hookspecs.types.commands import CollectiveRpc, GetStatus, Sleep, UpdateWeights
from hookspecs.types.outputs import EngineCoreOutputs, UtilityResult
from hookspecs.types.request import FinishReason
from tests.processes.hosts import Linked, front_end, hosted
from tests.processes.launches import PATIENCE_S, drill_config, long_params


@pytest.fixture
def linked() -> Iterator[Linked]:
    settings = drill_config(engine={"max_message_bytes": 1 << 22})
    with hosted(settings) as (_, (one,)):
        yield one


def _send(linked: Linked, *frames: Any) -> None:
    linked.links._router.send_multipart([b"engine-0", *frames])


def _next(linked: Linked) -> Any:
    received = linked.links.receive(PATIENCE_S)
    assert received is not None
    return received


def _request(handle: int, **fields: Any) -> dict[str, Any]:
    params = msgspec.to_builtins(long_params(2))
    return {
        "request_id": f"r{handle}",
        "handle": handle,
        "prompt_token_ids": [1, 2, 3],
        "sampling_params": params,
        "arrival_time": 0.0,
        **fields,
    }


def _add(linked: Linked, *requests: dict[str, Any]) -> None:
    _send(linked, *encode_message(Encoder(), MessageKind.ADD, list(requests)))


def _end_of(linked: Linked, handle: int) -> EngineCoreOutputs:
    while True:
        for bundle in _bundles(_next(linked)):
            for row in bundle.rows():
                if row.handle == handle and row.finish_reason is not None:
                    return bundle


def _bundles(received: Any) -> list[EngineCoreOutputs]:
    return received if isinstance(received, list) else []


def _assert_serves(linked: Linked, handle: int) -> None:
    _add(linked, _request(handle))
    end = _end_of(linked, handle)
    assert end.finish_codes[end.handles.tolist().index(handle)] == FinishReason.LENGTH


def test_a_wrong_request_is_answered_alone(linked: Linked) -> None:
    wrongs: list[dict[str, Any]] = [
        {"sampling_params": {"temperature": "hot"}},
        {"prompt_token_ids": ["one"]},
        {"prompt_token_ids": []},
        {"prompt_token_ids": [10**9]},
        {"request_id": 3},
        {"priority": None},
        {"eos_token_id": 2**40},
        {"sampling_params": {"temperature": float("nan")}},
    ]
    for handle, wrong in enumerate(wrongs):
        _add(linked, _request(handle, **wrong))
        end = _end_of(linked, handle)
        assert end.finish_codes.tolist() == [FinishReason.ERROR], wrong
        assert end.errors is not None
        assert end.errors[0]
    _assert_serves(linked, 100)


def test_a_handle_that_no_answer_can_carry_is_dropped(linked: Linked) -> None:
    for handle in (2**63, 2**64 - 1, -1):
        _add(linked, _request(handle))
        _add(linked, _request(handle, prompt_token_ids=[]))
    _assert_serves(linked, 101)


def test_wrong_and_right_requests_come_in_any_order(linked: Linked) -> None:
    for handle in range(1, 20, 2):
        _add(linked, _request(handle, priority="high"))
        _add(linked, _request(handle + 1))
    reasons: dict[int, int] = {}
    while len(reasons) < 20:
        for bundle in _next(linked):
            for handle, code in zip(bundle.handles, bundle.finish_codes, strict=True):
                if code >= 0:
                    reasons[int(handle)] = int(code)
    assert [reasons[handle] for handle in range(1, 21)] == [
        FinishReason.ERROR,
        FinishReason.LENGTH,
    ] * 10


def test_a_name_that_is_in_use_is_refused(linked: Linked) -> None:
    _add(linked, _request(1, sampling_params=msgspec.to_builtins(long_params())))
    _add(linked, _request(2, request_id="r1"))
    end = _end_of(linked, 2)
    assert end.errors is not None
    assert "still in the engine" in str(end.errors)
    linked.links.send_abort(0, [1], FinishReason.ABORT)
    _end_of(linked, 1)


def test_what_is_no_message_is_dropped(linked: Linked) -> None:
    _send(linked, b"")
    _send(linked, b"\xff", b"\x00")
    _send(linked, MessageKind.ADD.value)
    _send(linked, MessageKind.ADD.value, b"\xc1")
    _send(linked, MessageKind.ADD.value, msgspec.msgpack.encode([{"handle": "none"}]))
    _send(linked, MessageKind.ABORT.value, msgspec.msgpack.encode(7))
    _send(linked, MessageKind.UTILITY.value, b"\x80")
    _send(linked, MessageKind.OUTPUTS.value, b"\x80")
    _send(linked, *[b"\x00"] * 50)
    _assert_serves(linked, 1)


def test_an_unknown_command_names_the_known_ones(linked: Linked) -> None:
    linked.links.send_command(0, 5, "format_disk", GetStatus())
    answer = _next(linked)
    assert isinstance(answer, UtilityResult)
    assert answer.call_id == 5
    with pytest.raises(InvalidRequestError, match=r"format_disk.*get_status"):
        result_of(GetStatus(), answer)


def test_wrong_arguments_of_a_command_are_answered(linked: Linked) -> None:
    _send(linked, *encode_utility(Encoder(), 5, "sleep", {"level": "deep"}))
    with pytest.raises(InvalidRequestError, match="level"):
        result_of(Sleep(), _next(linked))


def test_a_command_whose_answer_can_not_be_sent_fails_alone(linked: Linked) -> None:
    calls: list[tuple[str, tuple[Any, ...], str]] = [
        ("odd", (), "its result can not be sent"),
        ("large", (1 << 22,), "max_message_bytes"),
        ("unspeakable", (), "Unspeakable"),
        ("no_such_command", (), "no_such_command"),
    ]
    for call_id, (command, args, text) in enumerate(calls):
        call = CollectiveRpc(command=command, args=args)
        linked.links.send_command(0, call_id, "collective_rpc", call)
        with pytest.raises(CommandError, match=text):
            result_of(call, _next(linked))
        _assert_serves(linked, call_id)


def test_what_comes_behind_a_fatal_command_does_not_hide_its_cause(linked: Linked) -> None:
    """All of it waits in the engine core when the command fails."""
    nap = CollectiveRpc(command="nap", args=(0.2,))
    linked.links.send_command(0, 1, "collective_rpc", nap)
    linked.links.send_command(0, 2, "update_weights", UpdateWeights(tensors={}))
    for handle in range(3):
        _add(linked, _request(handle))
    with pytest.raises(EngineDeadError, match="the drill broke with its weights"):
        while True:
            linked.links.check_alive(0)
            linked.links.receive(0.05)


def test_what_is_too_long_is_refused_where_it_is_sent(linked: Linked) -> None:
    async def main() -> None:
        async with front_end(linked) as (engine, _):
            # None of them is large enough for a file.
            large = UpdateWeights(tensors={str(n): np.zeros(1_000_000, np.int8) for n in range(5)})
            with pytest.raises(TransportError, match=r"engine\.max_message_bytes"):
                await engine.run_command(large)
            outputs = engine.generate([1], long_params(3), request_id="a")
            assert sum([len(output.outputs[0].token_ids) async for output in outputs]) == 3

    asyncio.run(main())
