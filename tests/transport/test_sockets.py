"""Sockets: both transports carry messages, strangers get nothing, limits hold."""

from __future__ import annotations

import asyncio
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import zmq
import zmq.asyncio
from zmq.utils.monitor import recv_monitor_message

from framework.transport.codec import Encoder
from framework.transport.curve import CurveKeys
from framework.transport.messages import (
    CORE_TO_FRONTEND,
    FRONTEND_TO_CORE,
    AbortRequests,
    MessageDecoder,
    MessageKind,
    encode_message,
)
from framework.transport.runtime_dir import RuntimeDir
from framework.transport.sockets import Sockets, bound_address
from hookspecs.errors import TransportError
from hookspecs.types.outputs import UtilityResult

LIMIT = 1 << 20
WAIT_MS = 20_000
KEYS = CurveKeys.generate()
Socket = zmq.Socket[bytes]


@pytest.fixture
def context() -> Iterator[zmq.Context[Socket]]:
    context: zmq.Context[Socket] = zmq.Context()
    yield context
    context.destroy(linger=0)


@pytest.fixture(params=["ipc", "tcp"])
def address(request: pytest.FixtureRequest, short_dir: Path) -> str:
    return "tcp://127.0.0.1:*" if request.param == "tcp" else f"ipc://{short_dir / 's'}"


def receive(socket: Socket) -> list[bytes]:
    assert socket.poll(WAIT_MS), "nothing arrived"
    return socket.recv_multipart()


def sockets_of(context: zmq.Context[Socket], keys: CurveKeys | None = KEYS) -> Sockets[Socket]:
    return Sockets(context, max_message_bytes=LIMIT, keys=keys)


def test_requests_and_outputs_travel(context: zmq.Context[Socket], address: str) -> None:
    sockets = sockets_of(context)
    router = sockets.bind(zmq.ROUTER, address)
    pull = sockets.bind(zmq.PULL, address.replace("/s", "/p"))
    dealer = sockets.connect(zmq.DEALER, bound_address(router), identity=b"\x01\x00")
    push = sockets.connect(zmq.PUSH, bound_address(pull))

    encoder = Encoder()
    dealer.send(b"here")
    assert receive(router) == [b"\x01\x00", b"here"]
    abort = AbortRequests([1, 2])
    router.send_multipart([b"\x01\x00", *encode_message(encoder, MessageKind.ABORT, abort)])
    assert MessageDecoder(FRONTEND_TO_CORE).decode(receive(dealer)) == (MessageKind.ABORT, abort)

    large = UtilityResult(call_id=1, result=np.arange(100_000))
    push.send_multipart(encode_message(encoder, MessageKind.UTILITY_RESULT, large), copy=False)
    assert pull.poll(WAIT_MS)
    frames = [frame.buffer for frame in pull.recv_multipart(copy=False)]
    _, result = MessageDecoder(CORE_TO_FRONTEND).decode(frames)
    assert np.array_equal(result.result, large.result)


def test_sockets_of_an_event_loop(address: str) -> None:
    async def talk() -> list[bytes]:
        context = zmq.asyncio.Context()
        sockets = Sockets(context, max_message_bytes=LIMIT, keys=KEYS)
        pull = sockets.bind(zmq.PULL, address)
        push = sockets.connect(zmq.PUSH, bound_address(pull))
        try:
            await push.send_multipart([b"a", b"b"])
            return await asyncio.wait_for(pull.recv_multipart(), WAIT_MS / 1000)
        finally:
            context.destroy(linger=0)

    assert asyncio.run(talk()) == [b"a", b"b"]


def test_to_an_engine_that_is_not_there(context: zmq.Context[Socket], short_dir: Path) -> None:
    router = sockets_of(context).bind(zmq.ROUTER, f"ipc://{short_dir}/s")
    with pytest.raises(zmq.ZMQError):
        router.send_multipart([b"\x01\x00", b"x"])


def test_files_of_sockets_are_private(context: zmq.Context[Socket]) -> None:
    made = RuntimeDir.create()
    try:
        sockets_of(context).bind(zmq.PULL, made.address("outputs"))
        mode = (made.sockets / "outputs").stat().st_mode
        assert stat.S_ISSOCK(mode)
        assert stat.S_IMODE(mode) == 0o600
    finally:
        made.remove()


def monitored(socket: Socket) -> Socket:
    return socket.get_monitor_socket(
        zmq.EVENT_HANDSHAKE_FAILED_AUTH
        | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
        | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
        | zmq.EVENT_DISCONNECTED
    )


def stranger(kind: int, address: str, keys: dict[int, bytes]) -> tuple[zmq.Context[Socket], Socket]:
    context: zmq.Context[Socket] = zmq.Context()
    socket = context.socket(kind)
    socket.linger = 0
    for option, value in keys.items():
        socket.setsockopt(option, value)
    socket.connect(address)
    return context, socket


def strange_keys() -> dict[str, dict[int, bytes]]:
    public, secret = zmq.curve_keypair()
    server = KEYS.server_public.encode()
    return {
        "no key": {},
        "its own key": {
            zmq.CURVE_SERVERKEY: server,
            zmq.CURVE_PUBLICKEY: public,
            zmq.CURVE_SECRETKEY: secret,
        },
        "the client's public key without its secret": {
            zmq.CURVE_SERVERKEY: server,
            zmq.CURVE_PUBLICKEY: KEYS.client_public.encode(),
            zmq.CURVE_SECRETKEY: secret,
        },
        "the server's public key as its own": {
            zmq.CURVE_SERVERKEY: server,
            zmq.CURVE_PUBLICKEY: server,
            zmq.CURVE_SECRETKEY: secret,
        },
    }


@pytest.mark.parametrize("who", list(strange_keys()))
def test_a_stranger_sends_nothing(who: str, context: zmq.Context[Socket]) -> None:
    sockets = sockets_of(context)
    pull = sockets.bind(zmq.PULL, "tcp://127.0.0.1:*")
    monitor = monitored(pull)
    other, push = stranger(zmq.PUSH, bound_address(pull), strange_keys()[who])
    try:
        push.send(b"from a stranger")
        assert monitor.poll(WAIT_MS), "the stranger was not refused"
        friend = sockets.connect(zmq.PUSH, bound_address(pull))
        friend.send(b"from a friend")
        assert receive(pull) == [b"from a friend"]
        assert not pull.poll(0)
    finally:
        other.destroy(linger=0)


@pytest.mark.parametrize("who", list(strange_keys()))
def test_a_stranger_receives_nothing(who: str, context: zmq.Context[Socket]) -> None:
    sockets = sockets_of(context)
    push = sockets.bind(zmq.PUSH, "tcp://127.0.0.1:*")
    monitor = monitored(push)
    other, pull = stranger(zmq.PULL, bound_address(push), strange_keys()[who])
    try:
        assert monitor.poll(WAIT_MS), "the stranger was not refused"
        # PUSH sends to whoever is connected: were the stranger, it would get every second one.
        friend = sockets.connect(zmq.PULL, bound_address(push))
        for number in range(4):
            push.send(bytes([number]))
        assert [receive(friend) for _ in range(4)] == [[bytes([number])] for number in range(4)]
        assert not pull.poll(0)
    finally:
        other.destroy(linger=0)


def test_a_false_server_gets_nothing(context: zmq.Context[Socket]) -> None:
    other: zmq.Context[Socket] = zmq.Context()
    pull = other.socket(zmq.PULL)
    pull.setsockopt(zmq.CURVE_SERVER, 1)
    pull.setsockopt(zmq.CURVE_SECRETKEY, zmq.curve_keypair()[1])
    pull.bind("tcp://127.0.0.1:*")
    monitor = monitored(pull)
    try:
        push = sockets_of(context).connect(zmq.PUSH, bound_address(pull))
        push.send(b"x")
        assert monitor.poll(WAIT_MS), "the handshake went on"
        assert recv_monitor_message(monitor)["event"] != zmq.EVENT_HANDSHAKE_SUCCEEDED
        assert not pull.poll(0)
        push.close(linger=0)
    finally:
        other.destroy(linger=0)


def test_a_frame_above_the_limit_disconnects_its_sender(
    context: zmq.Context[Socket], address: str
) -> None:
    pull = sockets_of(context).bind(zmq.PULL, address)
    monitor = monitored(pull)
    larger: Sockets[Any] = Sockets(zmq.Context(), max_message_bytes=4 * LIMIT, keys=KEYS)
    push = larger.connect(zmq.PUSH, bound_address(pull))
    try:
        push.send(b"x" * LIMIT)
        assert receive(pull) == [b"x" * LIMIT]
        push.send(b"x" * 2 * LIMIT)
        assert monitor.poll(WAIT_MS), "the sender was not disconnected"
        assert not pull.poll(0)
    finally:
        push.context.destroy(linger=0)


def test_tcp_needs_keys(context: zmq.Context[Socket]) -> None:
    sockets = sockets_of(context, keys=None)
    with pytest.raises(TransportError, match="keys"):
        sockets.bind(zmq.PULL, "tcp://127.0.0.1:*")
    with pytest.raises(TransportError, match="keys"):
        sockets.connect(zmq.PUSH, "tcp://127.0.0.1:1")


@pytest.mark.parametrize("address", ["ipc://@name", "ipc://relative", "inproc://x", "", "/tmp/x"])
def test_other_addresses_are_refused(address: str, context: zmq.Context[Socket]) -> None:
    with pytest.raises(TransportError, match="absolute path"):
        sockets_of(context).bind(zmq.PULL, address)


def test_what_can_not_be_bound_is_told(context: zmq.Context[Socket], short_dir: Path) -> None:
    sockets = sockets_of(context)
    with pytest.raises(TransportError, match="can not be bound"):
        sockets.bind(zmq.PULL, f"ipc://{short_dir}/absent/s")
    taken = sockets.bind(zmq.PULL, "tcp://127.0.0.1:*")
    with pytest.raises(TransportError, match="can not be bound"):
        sockets.bind(zmq.PULL, bound_address(taken))
    with pytest.raises(TransportError, match="handler"):
        sockets_of(context).bind(zmq.PULL, "tcp://127.0.0.1:*")
    with pytest.raises(TransportError, match="socket type"):
        sockets.bind(zmq.PUB, "tcp://127.0.0.1:*")


def test_keys_travel_in_messages_and_not_in_logs() -> None:
    back = msgspec.msgpack.decode(msgspec.msgpack.encode(KEYS), type=CurveKeys)
    assert back == KEYS
    assert KEYS.client_secret not in f"{KEYS} {KEYS!r}"
    assert KEYS.server_secret not in f"{KEYS} {KEYS!r}"
    assert CurveKeys.generate() != KEYS
