"""A prefix that is being computed is waited for, not computed twice."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.core.scripted import greedy, launch_scripted

SHARED = [7] * 20
"""Five blocks."""


def _run(prompts: list[list[int]], *, caching: bool = True, budget: int = 200) -> Any:
    """Step by step the computed tokens, and the outputs."""
    totals: list[int] = []
    with launch_scripted(
        cache={"num_blocks": 400, "enable_prefix_caching": caching},
        scheduler={"max_num_seqs": 16, "max_num_batched_tokens": budget},
    ) as engine:
        core: Any = engine.engine._client._core  # type: ignore[attr-defined]
        schedule = core.parts.scheduler.schedule

        def watched() -> Any:
            scheduled = schedule()
            totals.append(scheduled.total_num_scheduled_tokens)
            return scheduled

        core._schedule_phase = watched
        outputs = engine.generate(prompts, greedy(4))
    return totals, [list(each.outputs[0].token_ids) for each in outputs]


def test_those_that_share_a_prefix_compute_it_once() -> None:
    prompts = [[*SHARED, 100 + number] for number in range(4)]
    totals, outputs = _run(prompts)
    assert totals[:2] == [21, 1 + 3]
    assert outputs == _run(prompts, caching=False)[1]


def test_those_that_share_none_start_at_once() -> None:
    totals, _ = _run([[100 + number, *SHARED] for number in range(4)])
    assert totals[0] == 4 * 21


def test_one_that_shares_less_than_a_block_more_starts_at_once() -> None:
    """What is cached is used, and what is computed now would not help."""
    totals, _ = _run([[1, 2, 3, 4, 5, 6], [1, 2, 3, 9, 9, 9]])
    assert totals[0] == 12


def test_who_does_not_look_into_the_cache_does_not_wait() -> None:
    with launch_scripted() as engine:
        outputs = engine.generate([SHARED, SHARED], greedy(4, prompt_logprobs=0))
    assert all(each.prompt_logprobs is not None for each in outputs)


@given(
    st.lists(
        st.tuples(st.integers(0, 20), st.integers(1, 3), st.integers(1, 12)),
        min_size=2,
        max_size=6,
    ),
    st.integers(3, 60),
)
def test_outputs_are_those_of_each_alone(made: list[tuple[int, int, int]], budget: int) -> None:
    prompts = [SHARED[:shared] + [20 + token] * own for shared, token, own in made]
    _, outputs = _run(prompts, budget=budget)
    assert outputs == _run(prompts, caching=False, budget=budget)[1]
