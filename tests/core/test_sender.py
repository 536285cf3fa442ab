"""What an engine core tells: what can not be sent harms those that asked for it."""

from __future__ import annotations

import queue
import threading
from typing import Any, cast

import numpy as np
import pytest
import zmq

from framework.core.extras import without_extras
from framework.core.heartbeat import HeartbeatThread
from framework.core.sender import Sender
from framework.transport.codec import Encoder
from framework.transport.messages import (
    CORE_TO_FRONTEND,
    EngineDead,
    Heartbeat,
    MessageDecoder,
    MessageKind,
    encode_message,
)
from hookspecs.types.control import EngineState
from hookspecs.types.outputs import EngineCoreOutputs
from hookspecs.types.request import FinishReason
from hookspecs.types.step import LogprobColumns

ERROR = int(FinishReason.ERROR)


def bundle(positions: int, *, errors: dict[int, str] | None = None) -> EngineCoreOutputs:
    """Three rows, of which row 1 has log-probabilities of one position."""
    columns = LogprobColumns(
        counts=np.array([positions], np.int32),
        token_ids=np.zeros(positions, np.int32),
        logprobs=np.zeros(positions, np.float32),
        ranks=np.ones(positions, np.int32),
    )
    return EngineCoreOutputs(
        handles=np.array([10, 11, 12], np.int64),
        num_tokens=np.ones(3, np.int32),
        token_ids=np.array([1, 2, 3], np.int32),
        finish_codes=np.array([-1, -1, 1], np.int8),
        timestamp=0.0,
        logprobs=columns,
        logprob_rows=np.array([1], np.int32),
        errors=errors or {},
    )


def test_without_extras_those_that_asked_end_and_the_others_do_not() -> None:
    stripped, failed = without_extras(bundle(5, errors={2: "a\ud800b"}), "too large")
    assert failed == [11]
    assert stripped.finish_codes.tolist() == [-1, ERROR, 1]
    assert stripped.token_ids.tolist() == [1, 2, 3]
    assert stripped.logprobs is None and stripped.logprob_rows is None
    assert "too large" in stripped.errors[1] and stripped.errors[2].isprintable()


class Bench:
    """A sender, and two front ends that hear it, of which the first listens for signs of life."""

    def __init__(self, max_bytes: int) -> None:
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.pulls, pushers = [], []
        for number in range(2):
            self.pulls.append(self.context.socket(zmq.PULL))
            self.pulls[-1].bind(f"inproc://front-end-{number}")
            pushers.append(self.context.socket(zmq.PUSH))
            pushers[-1].connect(f"inproc://front-end-{number}")
        self.failures: list[Exception] = []
        self.given_up: list[tuple[int, list[int]]] = []
        self.decoder = MessageDecoder(CORE_TO_FRONTEND)
        self.step = 0
        self.sender = Sender(
            pushers,
            listening=[0],
            beat=lambda: Heartbeat(engine_index=0, state=EngineState.RUNNING, step=self.step),
            encoder=Encoder(max_bytes=max_bytes),
            give_up=lambda client, handles: self.given_up.append((client, handles)),
            failed=self.failures.append,
        )

    def receive(self, client: int = 0) -> tuple[MessageKind, Any]:
        """The next message."""
        assert self.pulls[client].poll(10_000)
        return self.decoder.decode(self.pulls[client].recv_multipart())

    def close(self) -> None:
        self.sender.close(EngineDead(engine_index=0, error_type="E", error="end"))
        self.context.destroy(linger=0)


@pytest.fixture
def bench() -> Any:
    made = Bench(max_bytes=2000)
    yield made
    made.close()


def test_a_bundle_that_is_too_large_goes_without_what_makes_it_so(bench: Bench) -> None:
    bench.sender.outputs(0, [bundle(5)])
    _, (small,) = bench.receive()
    assert small.logprobs is not None and bench.given_up == []
    bench.sender.outputs(0, [bundle(5000)])
    _, (large,) = bench.receive()
    assert large.finish_codes.tolist() == [-1, ERROR, 1]
    assert bench.given_up == [(0, [11])]
    assert not bench.failures


def test_of_several_bundles_only_the_one_that_is_too_large_loses_something(bench: Bench) -> None:
    bench.sender.outputs(0, [bundle(5), bundle(5000), bundle(5)])
    received = [bench.receive()[1] for _ in range(3)]
    assert [[one.logprobs is None for one in bundles] for bundles in received] == [
        [False],
        [True],
        [False],
    ]
    assert bench.given_up == [(0, [11])]
    bench.sender.outputs(0, [bundle(5), bundle(6)])
    _, together = bench.receive()
    assert [int(one.logprobs.counts[0]) for one in together] == [5, 6]
    assert not bench.failures


def test_the_last_words_are_sent_after_a_failure_and_nothing_after_them(bench: Bench) -> None:
    bench.sender.outputs(0, [cast(EngineCoreOutputs, object())])
    assert len(bench.failures) == 1
    bench.sender.close(EngineDead(engine_index=0, error_type="StepError", error="why"))
    bench.sender.outputs(0, [bundle(1)])
    for client in (0, 1):
        kind, body = bench.receive(client)
        assert kind is MessageKind.DEAD and body.error == "why"
    assert len(bench.failures) == 1


def test_signs_of_life_of_an_idle_engine_go_to_those_that_listen(bench: Bench) -> None:
    bench.sender.sign_of_life()
    bench.sender.sign_of_life()
    bench.step = 1
    bench.sender.sign_of_life()
    bench.sender.state()
    bench.sender.close(EngineDead(engine_index=0, error_type="E", error="end"))
    heard = []
    for client in (0, 1):
        while (message := bench.receive(client))[0] is MessageKind.HEARTBEAT:
            heard.append((client, message[1].step))
    assert heard == [(0, 0), (0, 0), (0, 1), (0, 1), (1, 0), (1, 1), (1, 1)]


def test_signs_of_life_come_while_the_main_thread_does_something_else() -> None:
    beats: queue.SimpleQueue[str] = queue.SimpleQueue()
    thread = HeartbeatThread(lambda: beats.put(threading.current_thread().name), 0.001)
    thread.start()
    assert [beats.get(timeout=10) for _ in range(3)] == ["heartbeat"] * 3
    thread.close()


def test_the_steady_bundle_is_two_small_frames() -> None:
    """Of 256 requests that got a token each: their handles, and little more than their tokens."""
    rows = 256
    frames = encode_message(
        Encoder(),
        MessageKind.OUTPUTS,
        [
            EngineCoreOutputs(
                handles=np.arange(rows),
                num_tokens=np.ones(rows, np.int32),
                token_ids=np.arange(rows, dtype=np.int32),
                finish_codes=np.full(rows, -1, np.int8),
                timestamp=1.0,
            )
        ],
    )
    assert len(frames) == 2
    assert sum(map(len, frames)) < rows * (8 + 4 + 4 + 1) + 200
    _, (back,) = MessageDecoder(CORE_TO_FRONTEND).decode(frames)
    assert [row.token_ids for row in back.rows()] == [[token] for token in range(rows)]


def test_a_state_that_can_not_be_told_is_a_failure_and_not_silence(bench: Bench) -> None:
    def broken() -> Heartbeat:
        raise RuntimeError("no report")

    bench.sender._beat = broken  # type: ignore[method-assign]
    bench.sender.sign_of_life()
    bench.sender.state()
    assert [str(failure) for failure in bench.failures] == ["no report"] * 2
    bench.sender.outputs(0, [bundle(5)])
    assert bench.receive()[0] is MessageKind.OUTPUTS
