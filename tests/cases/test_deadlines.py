"""Requests whose time is up while they wait."""

from __future__ import annotations

from typing import Any

import pytest

from tests.core.scripted import greedy
from tests.idle import core_of

PAST, FUTURE = 0.0, 1e15


@pytest.mark.parametrize("num_seqs", [1, 4])
def test_a_request_that_expires_in_the_queue_costs_nothing(
    launch: Any, plain: Any, watcher: Any, num_seqs: int
) -> None:
    engine = launch(scheduler={"policies": ["deadline"], "max_num_seqs": num_seqs})
    llm = engine.engine
    llm.add_request("runs", [5] * 20, greedy(6), deadline=FUTURE)
    llm.step()
    llm.add_request("late", [6] * 30, greedy(6), deadline=PAST)
    llm.add_request("in time", [7, 8], greedy(6), deadline=FUTURE)
    done: dict[str, Any] = {}
    while llm.has_unfinished_requests():
        done.update((output.request_id, output) for output in llm.step() if output.finished)
    late = done["late"].outputs[0]
    assert (late.finish_reason, late.token_ids) == ("timeout", [])
    assert "late" in late.error and "time" in late.error
    assert done["runs"].outputs[0].token_ids == plain(engine, [5] * 20, 6)
    assert done["in time"].outputs[0].token_ids == plain(engine, [7, 8], 6)
    # The other two have 20 + 5 and 2 + 5 tokens to compute.
    assert sum(step.num_scheduled_tokens for step in watcher.steps) == 32
    assert not any(event.request_id.startswith("late") for event in watcher.admitted)


def test_all_outputs_of_a_request_expire(launch: Any, watcher: Any) -> None:
    engine = launch(scheduler={"policies": ["deadline"]})
    llm = engine.engine
    llm.add_request("late", [1, 2], greedy(6, temperature=1.0, n=3), deadline=PAST)
    (output,) = llm.step()
    assert output.finished
    assert [completion.finish_reason for completion in output.outputs] == ["timeout"] * 3
    assert watcher.steps == []


def test_a_request_that_started_in_time_is_finished(launch: Any, plain: Any, watcher: Any) -> None:
    """Preempted when its deadline passes, it still ends with its whole output."""
    engine = launch(
        scheduler={"policies": ["priority", "deadline"]},
        cache={"block_size": 4, "num_blocks": 8},
        plugins_options={"priority": {"preempt_running": True}},
    )
    llm = engine.engine
    now = 1.0
    core_of(engine).parts.view._clock = lambda: now
    llm.add_request("low", [5] * 9, greedy(9), priority=1, deadline=5.0)
    llm.step()
    llm.step()
    llm.add_request("urgent", [6] * 24, greedy(8), priority=0, deadline=50.0)
    llm.step()
    assert watcher.num_preempted == 1
    now = 9.0
    done: dict[str, Any] = {}
    while llm.has_unfinished_requests():
        done.update((output.request_id, output) for output in llm.step() if output.finished)
    assert done["low"].outputs[0].token_ids == plain(engine, [5] * 9, 9)
    assert done["urgent"].outputs[0].token_ids == plain(engine, [6] * 24, 8)
