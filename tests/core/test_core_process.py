"""When the loop of an engine core process sends what its steps gave."""

from __future__ import annotations

import queue
import time
from concurrent.futures import Future
from typing import Any, cast

import pytest

from framework.core.core_process import EngineCoreProcess
from framework.core.engine import EngineCore
from framework.core.heartbeat import LoopProgress
from framework.core.input_thread import Abort, Call, Input, StopRequested, ThreadFailed
from framework.core.sender import Sender
from framework.transport.messages import AbortRequests
from hookspecs.types.commands import CommandArguments, GetStatus
from hookspecs.types.control import EngineState


class _Core:
    """Gives one bundle a step, in `steps` steps; a step takes `seconds`."""

    def __init__(self, log: list[str], steps: int, seconds: float) -> None:
        self.log, self.left, self.seconds = log, steps, seconds
        self.now = 100.0
        self.state = EngineState.RUNNING
        self.last_step_was_empty = False
        self.goes_on = True
        self.parts = None
        self.inputs: queue.SimpleQueue[Input] = queue.SimpleQueue()
        self.during: dict[int, Input] = {}
        """Number of a step to what comes while it runs."""
        self.raises_at: int | None = None

    @property
    def has_work(self) -> bool:
        return self.left > 0

    def step(self) -> dict[int, Any]:
        number, self.left = self.left, self.left - 1
        self.now += self.seconds
        self.log.append(f"step {number}")
        if number == self.raises_at:
            self.left = 0
            raise RuntimeError("broken")
        if number in self.during:
            self.inputs.put(self.during[number])
        if self.left == 0:
            self.inputs.put(StopRequested(0.0))
        return {0: f"outputs {number}"}

    def next_deadline(self) -> None:
        return None

    def abort_requests(self, handles: Any, **_: Any) -> None:
        self.log.append("abort")

    def command(self, arguments: CommandArguments) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(None)
        return done


class _Sender:
    def __init__(self, log: list[str]) -> None:
        self.log = log

    def outputs(self, client_index: int, bundles: list[Any]) -> None:
        self.log += [f"send {bundle}" for bundle in bundles]

    def result(self, client_index: int, result: Any) -> None:
        self.log.append("send answer")

    def state(self) -> None:
        self.log.append("send state")


def _run(core: _Core, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr(time, "monotonic", lambda: core.now)
    engine = cast(EngineCore, core)
    sender = cast(Sender, _Sender(core.log))
    EngineCoreProcess(engine, core.inputs, sender, LoopProgress(engine)).run()
    return core.log


def test_outputs_of_long_steps_leave_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    log = _run(_Core([], 3, 0.002), monkeypatch)
    assert log == [
        event for n in (3, 2, 1) for event in (f"step {n}", f"send outputs {n}")
    ]  # fmt: skip


def test_outputs_of_short_steps_leave_together_and_none_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = _run(_Core([], 40, 0.0001), monkeypatch)
    sent = [event for event in log if event.startswith("send")]
    assert sent == [f"send outputs {n}" for n in range(40, 0, -1)]
    assert log[-1] == "send outputs 1"
    longest = 0
    for event in log:
        longest = longest + 1 if event.startswith("step") else 0
        assert longest <= 6
    assert "step 38 step 37" in " ".join(log)


@pytest.mark.parametrize(
    "comes",
    [
        pytest.param(Abort(0, AbortRequests(handles=[1])), id="an input"),
        pytest.param(Call(0, 1, GetStatus()), id="a command"),
    ],
)
def test_what_comes_sends_the_outputs_before_it(
    monkeypatch: pytest.MonkeyPatch, comes: Input
) -> None:
    core = _Core([], 9, 0.0)
    core.during[5] = comes
    log = _run(core, monkeypatch)
    taken = log.index("abort" if isinstance(comes, Abort) else "send answer")
    assert log.index("send outputs 5") < taken


def test_outputs_before_a_failure_are_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    core = _Core([], 9, 0.0)
    core.raises_at = 4
    with pytest.raises(RuntimeError, match="broken"):
        _run(core, monkeypatch)
    assert core.log[-1] == "send outputs 5"

    core = _Core([], 9, 0.0)
    core.during[5] = ThreadFailed(RuntimeError("deaf"))
    with pytest.raises(RuntimeError, match="deaf"):
        _run(core, monkeypatch)
    assert core.log[-1] == "send outputs 5"
