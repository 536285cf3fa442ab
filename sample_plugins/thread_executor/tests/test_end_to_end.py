"""The installed executor in an engine whose worker emits scripted tokens."""

from __future__ import annotations

import threading
from typing import Any

import framework
import pytest
from hookspecs import SamplingParams
from hookspecs.errors import (
    CommandError,
    ConfigError,
    EngineDeadError,
    StepError,
    UnsupportedFeatureError,
)


def launch(name: str, **sections: Any) -> framework.Engine:
    return framework.launch(
        {
            "model": {"name": "scripted"},
            "executor": {"name": name, "worker": "scripted"},
            "engine": {"debug": True},
            # A small cache and budget: prompts are computed in parts, requests are preempted.
            "cache": {"num_blocks": 12, "block_size": 4},
            "scheduler": {"max_num_batched_tokens": 10},
            "stats": {"loggers": []},
            **sections,
        }
    )


def greedy(max_tokens: int, **script: Any) -> SamplingParams:
    return SamplingParams(
        max_tokens=max_tokens,
        temperature=0,
        detokenize=False,
        extensions={"scripted": script} if script else {},
    )


def generated(executor: str) -> list[list[int]]:
    prompts = [[1 + (i * length) % 7 for i in range(length)] for length in (3, 25, 8, 12)]
    with launch(executor) as engine:
        outputs = engine.generate(prompts, greedy(16))
    assert [output.outputs[0].finish_reason for output in outputs] == ["length"] * 4
    return [list(output.outputs[0].token_ids) for output in outputs]


def test_tokens_are_those_of_the_executor_without_a_thread() -> None:
    before = threading.active_count()
    assert generated("threads") == generated("uniproc")
    assert threading.active_count() == before


def test_tokens_are_the_same_from_a_separate_engine_core() -> None:
    with launch("threads", engine={"process": "separate"}) as engine:
        [output] = engine.generate([[1, 2, 3]], greedy(8))
    with launch("uniproc") as engine:
        [expected] = engine.generate([[1, 2, 3]], greedy(8))
    assert output.outputs[0].token_ids == expected.outputs[0].token_ids


def test_a_failing_worker_stops_the_engine_with_its_own_error() -> None:
    engine = launch("threads")
    with pytest.raises(StepError, match=r"'worker-scripted' raised RuntimeError.*output 2") as told:
        engine.generate([[1, 2, 3], [4, 5]], [greedy(8), greedy(8, raise_at=2)])
    assert told.value.plugin == "worker-scripted"
    with pytest.raises(EngineDeadError):
        engine.generate([[1]], greedy(1))
    engine.shutdown()
    assert not [thread for thread in threading.enumerate() if thread.name == "worker-0"]


def test_control_commands_reach_the_worker() -> None:
    with launch("threads") as engine:
        engine.sleep(level=1)
        engine.wake_up()
        [output] = engine.generate([[1, 2, 3]], greedy(2))
        assert output.finished
        with pytest.raises(CommandError, match="unknown worker command 'nothing'"):
            engine.collective_rpc("nothing", timeout_s=5)


def test_a_start_that_fails_leaves_no_thread() -> None:
    with pytest.raises(ConfigError, match="the KV cache has 1 bytes"):
        launch("threads", cache={"kv_bytes": 1})
    assert not [thread for thread in threading.enumerate() if thread.name == "worker-0"]


def test_more_than_one_rank_is_refused() -> None:
    with pytest.raises(UnsupportedFeatureError, match="executor 'threads' does not declare"):
        launch(
            "threads", executor={"name": "threads", "worker": "scripted", "tensor_parallel_size": 2}
        )
