"""`engine.transport = "tcp"`: encrypted, and closed to strangers on the same machine."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
import zmq

import framework
from framework import SamplingParams
from framework.core.start import FrontEndAddress
from framework.transport.codec import Encoder
from framework.transport.curve import CurveKeys
from framework.transport.messages import EngineDead, MessageKind, encode_message
from framework.transport.sockets import Sockets
from hookspecs.types.control import EngineHealth
from tests.processes.launches import config, long_params

TCP = {"process": "separate", "transport": "tcp"}
PARAMS = SamplingParams(max_tokens=5, temperature=0, detokenize=False)


def test_outputs_are_as_over_ipc_and_in_process() -> None:
    found = []
    for section in ({}, {"process": "separate"}, TCP):
        with framework.launch(config(engine=section)) as engine:
            found.append([o.outputs[0].token_ids for o in engine.generate([[1, 2], [3]], PARAMS)])
            assert engine.status().num_running == 0
    assert found[0] == found[1] == found[2]


def test_streams_and_commands_of_an_event_loop() -> None:
    async def main() -> None:
        async with framework.launch_async(config(engine={"transport": "tcp"})) as engine:
            outputs = engine.generate([1, 2], long_params(300), request_id="a")
            assert sum([len(output.outputs[0].token_ids) async for output in outputs]) == 300
            await engine.pause()
            await engine.resume()

    asyncio.run(main())


@pytest.fixture(params=["no keys", "other keys"])
def stranger(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Makes sockets that connect to an address."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    others = Sockets(context, max_message_bytes=1 << 20, keys=CurveKeys.generate())

    def connect(kind: int, address: str) -> zmq.Socket[bytes]:
        if request.param == "other keys":
            return others.connect(kind, address, identity=b"engine-0")
        socket = context.socket(kind)
        socket.setsockopt(zmq.IDENTITY, b"engine-0")
        socket.setsockopt(zmq.LINGER, 0)
        socket.connect(address)
        return socket

    yield connect
    context.destroy(linger=0)


def test_a_stranger_neither_hears_nor_is_heard(stranger: Any) -> None:
    async def main() -> None:
        async with framework.launch_async(config(engine={"transport": "tcp"})) as engine:
            address: FrontEndAddress = engine._client._links.address
            assert address.inputs.startswith("tcp://127.0.0.1:")
            takes_requests = stranger(zmq.DEALER, address.inputs)
            sends_outputs = stranger(zmq.PUSH, address.outputs)
            dead = EngineDead(engine_index=0, error_type="EngineDeadError", error="a lie")
            sends_outputs.send_multipart(encode_message(Encoder(), MessageKind.DEAD, dead))
            takes_requests.send_multipart([b"\x10", msgspec.msgpack.encode({})])
            for number in range(5):
                outputs = engine.generate([1], long_params(100), request_id=str(number))
                assert sum([len(output.outputs[0].token_ids) async for output in outputs]) == 100
            assert not takes_requests.poll(100)
            assert engine.health() == EngineHealth(live=True, ready=True)

    asyncio.run(main())
