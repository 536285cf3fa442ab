"""Prompts do not hold up those that decode."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from framework.core.limits import prefill_beside_decode
from hookspecs.config import EngineConfig, SchedulerConfig
from tests.core.scripted import greedy, launch_scripted


def _counts(prompts: list[int], limit: int | None, *, joins_at: int = 3) -> list[list[int]]:
    """Tokens of each row, step by step, those of prompts negative. The first prompt has had
    `joins_at` steps when the others come."""
    steps: list[list[int]] = []
    with launch_scripted(
        cache={"num_blocks": 400},
        scheduler={
            "max_num_seqs": 8,
            "max_num_batched_tokens": 64,
            "prefill_beside_decode": limit,
        },
    ) as engine:
        core: Any = engine.engine._client._core  # type: ignore[attr-defined]
        schedule = core.parts.scheduler.schedule

        def watched() -> Any:
            scheduled = schedule()
            requests = core.parts.table.requests
            steps.append(
                [
                    count if computed >= requests[slot].num_prompt_tokens else -count
                    for slot, count, computed, _ in scheduled.rows()
                ]
            )
            return scheduled

        core._schedule_phase = watched
        for number, length in enumerate(prompts):
            if number == 1:
                for _ in range(joins_at):
                    engine.engine.step()
            engine.engine.add_request(f"r{number}", [10 + number] * length, greedy(40))
        while engine.engine.has_unfinished_requests():
            engine.engine.step()
    return steps


def test_a_long_prompt_takes_small_chunks_while_others_decode() -> None:
    steps = _counts([5, 100], 8)
    mixed = [step for step in steps if len(step) == 2]
    assert mixed[:13] == [[1, -8]] * 12 + [[1, -4]]
    assert mixed[13] == [1, 1]


def test_without_a_limit_it_takes_the_budget() -> None:
    steps = _counts([5, 100], None)
    assert [1, -63] in steps


def test_a_prompt_alone_is_not_limited() -> None:
    assert _counts([100], 8)[:2] == [[-64], [-36]]


def test_one_that_is_older_does_not_keep_others_from_decoding() -> None:
    """The order is by arrival, and a long prompt comes first; who decodes goes on in each step."""
    steps = _counts([300, 5, 5], 8, joins_at=0)
    decoding = 0
    for step in steps:
        assert step.count(1) >= decoding
        decoding = step.count(1)
        if decoding == 2:
            break


@given(st.lists(st.integers(1, 150), min_size=2, max_size=6), st.integers(1, 40), st.integers(1, 4))
def test_the_limit_holds_in_every_step(prompts: list[int], limit: int, joins_at: int) -> None:
    for step in _counts(prompts, limit, joins_at=joins_at):
        assert sum(map(abs, step)) <= 64
        if max(step, default=0) == 1:
            ones = sum(abs(count) == 1 for count in step)
            assert sum(-count for count in step if count < -1) <= max(limit, ones)


class _Worker:
    def __init__(self, most: int | None) -> None:
        self.prefill_beside_decode = most


@pytest.mark.parametrize(
    ("configured", "named", "expected"),
    [(None, [], None), (None, [None], None), (None, [64, None, 32], 32), (7, [64], 7)],
)
def test_who_says_it(configured: int | None, named: list[int | None], expected: Any) -> None:
    config = EngineConfig(scheduler=SchedulerConfig(prefill_beside_decode=configured))
    workers: Any = [_Worker(most) for most in named]
    assert prefill_beside_decode(config, workers) == expected
