"""The output thread of an engine core: what can not be sent harms those that asked for it."""

from __future__ import annotations

import queue
from typing import Any, cast

import numpy as np
import pytest
import zmq

from framework.core.extras import without_extras
from framework.core.output_thread import LoopProgress, OutputThread
from framework.transport.codec import Encoder
from framework.transport.messages import (
    CORE_TO_FRONTEND,
    EngineDead,
    Heartbeat,
    MessageDecoder,
    MessageKind,
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


class Progress:
    """Of an engine that does nothing."""

    def heartbeat(self, plugin_calls: Any) -> Heartbeat:
        return Heartbeat(engine_index=0, state=EngineState.RUNNING, step=0)


class Bench:
    """An output thread and the front end that hears it."""

    def __init__(self, max_bytes: int) -> None:
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.pull = self.context.socket(zmq.PULL)
        self.pull.bind("inproc://front-end")
        push = self.context.socket(zmq.PUSH)
        push.connect("inproc://front-end")
        self.failures: queue.SimpleQueue[Exception] = queue.SimpleQueue()
        self.given_up: list[tuple[int, list[int]]] = []
        self.decoder = MessageDecoder(CORE_TO_FRONTEND)
        self.thread = OutputThread(
            [push],
            listening=[0],
            progress=cast(LoopProgress, Progress()),
            plugin_calls=list,
            interval_s=3600,
            encoder=Encoder(max_bytes=max_bytes),
            give_up=lambda client, handles: self.given_up.append((client, handles)),
            failed=self.failures.put,
        )
        self.thread.start()

    def receive(self) -> tuple[MessageKind, Any]:
        """The next message but heartbeats."""
        while True:
            assert self.pull.poll(10_000)
            kind, body = self.decoder.decode(self.pull.recv_multipart())
            if kind is not MessageKind.HEARTBEAT:
                return kind, body

    def close(self) -> None:
        self.thread.close()
        self.context.destroy(linger=0)


@pytest.fixture
def bench() -> Any:
    made = Bench(max_bytes=2000)
    yield made
    made.close()


def test_a_bundle_that_is_too_large_goes_without_what_makes_it_so(bench: Bench) -> None:
    bench.thread.outputs(0, bundle(5))
    _, small = bench.receive()
    assert small.logprobs is not None and bench.given_up == []
    bench.thread.outputs(0, bundle(5000))
    _, large = bench.receive()
    assert large.finish_codes.tolist() == [-1, ERROR, 1]
    assert bench.given_up == [(0, [11])]
    assert bench.failures.empty()


def test_the_last_words_are_sent_after_a_failure(bench: Bench) -> None:
    bench.thread.outputs(0, cast(EngineCoreOutputs, object()))
    assert isinstance(bench.failures.get(timeout=10), Exception)
    bench.thread.dead(EngineDead(engine_index=0, error_type="StepError", error="why"))
    kind, body = bench.receive()
    assert kind is MessageKind.DEAD and body.error == "why"
