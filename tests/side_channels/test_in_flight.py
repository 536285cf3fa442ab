"""Several steps in flight, as with an executor that launches the next before it samples."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest

from framework.config import load_config
from framework.core.side_channels.worker_side import with_side_channels
from framework.plugins.manager import PluginManager
from hookspecs.contracts.worker import Worker
from hookspecs.types.step import GrammarOutput, ModelRunnerOutput, SchedulerOutput
from tests.side_channels.probe import ProbeReply, calls_in, probe


class Queueing:
    """Of a worker what steps need; samples from the oldest forward."""

    context: Any = SimpleNamespace(rank=0)
    capabilities: frozenset[str] = frozenset()

    def __init__(self) -> None:
        self.forwards: list[SchedulerOutput] = []

    def execute_model(self, scheduled: SchedulerOutput) -> None:
        if scheduled.step == 99:
            raise RuntimeError("out of memory")
        self.forwards.append(scheduled)

    def sample_tokens(self, grammar: GrammarOutput | None) -> ModelRunnerOutput:
        rows = self.forwards.pop(0).num_rows
        return ModelRunnerOutput(
            num_sampled=np.ones(rows, np.int32), token_ids=np.zeros(rows, np.int32)
        )

    def shutdown(self) -> None:
        return


def step(number: int, rows: int) -> SchedulerOutput:
    return SchedulerOutput(
        step=number,
        slots=np.arange(rows, dtype=np.int32),
        num_scheduled_tokens=np.ones(rows, np.int32),
        num_computed_tokens=np.zeros(rows, np.int32),
        samples=np.ones(rows, np.bool_),
        total_num_scheduled_tokens=rows,
    )


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def worker(log: Path) -> Worker:
    settings = {
        "engine": {"side_channels": ["probe"]},
        "plugins": {"options": {"probe": {"log": str(log)}}},
    }
    plugins = PluginManager.build(load_config(settings).config, objects=[probe])
    inner: Any = Queueing()
    return with_side_channels(inner, plugins, 0, lambda failure: pytest.fail(str(failure)))


def replied(output: ModelRunnerOutput) -> tuple[int, int]:
    reply = msgspec.msgpack.decode(output.side_channel["probe"], type=ProbeReply)
    return reply.step, reply.sampled


def test_a_reply_is_to_the_step_that_was_sampled(worker: Worker) -> None:
    worker.execute_model(step(1, 2))
    worker.execute_model(step(2, 3))
    assert replied(worker.sample_tokens(None)) == (1, 2)
    worker.execute_model(step(3, 1))
    assert replied(worker.sample_tokens(None)) == (2, 3)
    assert replied(worker.sample_tokens(None)) == (3, 1)


def test_a_forward_that_failed_is_not_replied_to(worker: Worker, log: Path) -> None:
    worker.execute_model(step(1, 2))
    with pytest.raises(RuntimeError, match="out of memory"):
        worker.execute_model(step(99, 4))
    worker.execute_model(step(2, 3))
    assert replied(worker.sample_tokens(None)) == (1, 2)
    assert replied(worker.sample_tokens(None)) == (2, 3)
    assert [call["step"] for call in calls_in(log, "worker.reply")] == [1, 2]


def test_without_a_forward_the_worker_has_the_word(worker: Worker, log: Path) -> None:
    with pytest.raises(IndexError):
        worker.sample_tokens(None)
    assert calls_in(log, "worker.reply") == []
