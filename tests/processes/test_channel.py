"""The channel between parent and child, and a parent whose child does not keep to it."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from framework.config import load_config
from framework.core.sender import Sender
from framework.launcher.sync import no_progress
from framework.plugins.manager import PluginManager
from framework.process import supervisor
from framework.process.channel import MAX_MESSAGE_BYTES, Channel
from framework.process.messages import ChildMessage, Line, ParentMessage, Stop, Told
from framework.process.remote_error import error_to_send, remote_error
from framework.process.supervisor import Child, StartUp, stop_all, wait_all_ready
from framework.transport.codec import Encoder
from framework.transport.messages import Heartbeat
from hookspecs.errors import (
    CommandError,
    ConfigError,
    EngineDeadError,
    FrameworkError,
    PluginLoadError,
    ProviderError,
    RequestError,
    RequestFailedError,
    TransportError,
)
from hookspecs.info import ProcessRole
from hookspecs.types.control import EngineState
from hookspecs.types.outputs import UtilityResult
from tests.processes.launches import PATIENCE_S, Place, config, until
from tests.processes.rude_child import Rudeness

SHOWN = StartUp(lambda line: None, no_progress)


@pytest.fixture
def channels() -> Iterator[tuple[Channel[Any], Channel[Any]]]:
    """A parent's and a child's side."""
    ours, theirs = socket.socketpair()
    parent, child = Channel[Any](ours, ChildMessage), Channel[Any](theirs, ParentMessage)
    yield parent, child
    parent.close()
    child.close()


def _texts(channel: Channel[Any], count: int) -> list[str]:
    messages = [channel.receive() for _ in range(count)]
    return [message.text for message in messages if isinstance(message, Line)]


def test_messages_come_in_order_whatever_their_size(
    channels: tuple[Channel[Any], Channel[Any]],
) -> None:
    parent, child = channels
    texts = ["", "a", "b" * 70_000, "c" * 5_000_000, "d"]
    sender = threading.Thread(target=lambda: [child.send(Line(text=text)) for text in texts])
    sender.start()
    assert _texts(parent, len(texts)) == texts
    sender.join()


def test_threads_do_not_mix_their_messages(channels: tuple[Channel[Any], Channel[Any]]) -> None:
    parent, child = channels
    senders = [
        threading.Thread(
            target=lambda letter=letter: [child.send(Line(text=letter * 50_000)) for _ in range(20)]
        )
        for letter in "abc"
    ]
    for sender in senders:
        sender.start()
    texts = _texts(parent, 60)
    for sender in senders:
        sender.join()
    assert sorted(texts) == sorted(letter * 50_000 for letter in "abc" for _ in range(20))


def test_a_message_beyond_the_limit_is_not_sent(
    channels: tuple[Channel[Any], Channel[Any]],
) -> None:
    parent, child = channels
    with pytest.raises(TransportError, match=str(MAX_MESSAGE_BYTES)):
        child.send(Told(payload=bytes(MAX_MESSAGE_BYTES)))
    child.send(Line(text="after it"))
    assert parent.receive() == Line(text="after it")


def test_the_end_of_one_side_is_told_to_the_other(
    channels: tuple[Channel[Any], Channel[Any]],
) -> None:
    parent, child = channels
    child.close()
    assert parent.receive() is None
    assert not parent.send(Stop())


def test_closing_wakes_who_waits(channels: tuple[Channel[Any], Channel[Any]]) -> None:
    parent, _ = channels
    heard: list[Any] = []
    listener = threading.Thread(target=lambda: heard.append(parent.receive()))
    listener.start()
    parent.close()
    listener.join(PATIENCE_S)
    assert heard == [None]


@pytest.mark.parametrize(
    "data",
    [
        struct.pack("<I", MAX_MESSAGE_BYTES + 1),
        struct.pack("<I", 1) + b"\xc1",
        struct.pack("<I", 0),
        struct.pack("<I", 5) + msgspec.msgpack.encode(["a", "b"]) + b"\x00\x00",
        struct.pack("<I", 10) + msgspec.msgpack.encode({"type": "Fly"}),
        struct.pack("<I", 23) + msgspec.msgpack.encode({"type": "Line", "text": 3}) + bytes(7),
    ],
)
def test_what_is_no_message_is_an_error(data: bytes) -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        channel = Channel[Any](ours, ChildMessage)
        theirs.sendall(data)
        theirs.shutdown(socket.SHUT_WR)
        with pytest.raises(TransportError):
            channel.receive()
        channel.close()


@pytest.mark.parametrize("size", [1, 3, 4, 9])
def test_half_a_message_is_the_end(size: int) -> None:
    ours, theirs = socket.socketpair()
    channel = Channel[Any](ours, ChildMessage)
    with theirs:
        theirs.sendall((struct.pack("<I", 10) + bytes(5))[:size])
    assert channel.receive() is None
    channel.close()


# Errors that cross


class _OwnError(ProviderError):
    pass


class _Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (ConfigError("a is 3"), ConfigError, "a is 3"),
        (_OwnError("mine", plugin="p"), ProviderError, "mine"),
        (ValueError("odd"), CommandError, "ValueError: odd"),
        (KeyError("k"), CommandError, "KeyError: 'k'"),
        (RequestFailedError("r", request_id="1"), RequestError, "r"),
        (_Mute(), CommandError, "_Mute"),
        (OSError("file \udcff"), CommandError, r"OSError: file \udcff"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_error_keeps_the_nearest_class_that_both_sides_know(
    error: Exception, kind: type[FrameworkError], text: str
) -> None:
    sent = msgspec.msgpack.decode(msgspec.msgpack.encode(error_to_send(error)))
    there = remote_error(*sent)
    assert type(there) is kind
    assert str(there) == text


# Rude children


def _child(what: str, place: Place, ended: list[str]) -> Child:
    manager = PluginManager.build(load_config(config()).config)
    return Child(
        "tests.processes.rude_child",
        name="rude",
        index=0,
        boot=manager.boot(ProcessRole.CORE),
        payload=Rudeness(what=what),
        runtime_dir=str(place.path),
        on_exit=lambda child: ended.append(child.describe_end()),
    )


@pytest.mark.parametrize(
    ("what", "kind", "text"),
    [
        ("exit", EngineDeadError, "ended with exit code 3 while it started"),
        ("garbage", EngineDeadError, "was killed by SIGKILL while it started"),
        ("huge", EngineDeadError, "was killed by SIGKILL while it started"),
        ("hang up", EngineDeadError, "was killed by SIGKILL while it started"),
        ("told", TransportError, "sent Told before it was ready"),
        ("other plugins", PluginLoadError, "x is there unasked"),
    ],
)
def test_a_child_that_does_not_keep_to_the_agreement_is_not_used(
    place: Place,
    monkeypatch: pytest.MonkeyPatch,
    what: str,
    kind: type[FrameworkError],
    text: str,
) -> None:
    monkeypatch.setattr(supervisor, "_GRACE_S", 0.2)
    ended: list[str] = []
    child = _child(what, place, ended)
    try:
        with pytest.raises(kind, match=text):
            wait_all_ready([child], time.monotonic() + PATIENCE_S, SHOWN)
    finally:
        stop_all([child])
    assert child.ended.is_set()
    assert ended == []


def test_a_child_that_does_not_stop_is_killed_in_the_end(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "_GRACE_S", 0.2)
    children = [_child("deaf", place, []) for _ in range(2)]
    for child in children:
        child.told(dict, time.monotonic() + PATIENCE_S, SHOWN)  # type: ignore[type-var]
    stop_all(children)
    assert [child.exit_code for child in children] == [-9, -9]


def test_an_interrupt_of_the_stop_kills(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    child = _child("deaf", place, [])
    child.told(dict, time.monotonic() + PATIENCE_S, SHOWN)  # type: ignore[type-var]

    def interrupted(*arguments: object) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(supervisor, "_all_ended", interrupted)
    with pytest.raises(KeyboardInterrupt):
        stop_all([child])
    until(child.ended.is_set)
    assert child.exit_code == -9


def test_a_failure_to_send_is_not_silent() -> None:
    class Broken:
        def send(self, frame: object, flags: int, copy: bool) -> None:
            raise RuntimeError("the socket broke")

    failures: list[Exception] = []
    sender = Sender(
        [Broken()],  # type: ignore[list-item]
        listening=[],
        beat=lambda: Heartbeat(engine_index=0, state=EngineState.RUNNING, step=0),
        encoder=Encoder(),
        give_up=lambda client_index, handles: None,
        failed=failures.append,
    )
    sender.result(0, UtilityResult(call_id=1))
    sender.sign_of_life()
    assert len(failures) == 2
    assert {str(failure) for failure in failures} == {"the socket broke"}
