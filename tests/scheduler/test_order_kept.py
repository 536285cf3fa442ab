"""Who waits, be it for a prefix or for room, does not lose its place to those behind it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.core.scripted import greedy, launch_scripted

SHARED = [7] * 20
"""Five blocks."""


def _drive(
    adds: dict[int, list[tuple[str, list[int], int, dict[str, Any]]]],
    *,
    steps: int = 400,
    **sections: Any,
) -> tuple[dict[str, int], list[dict[str, int]]]:
    """The step in which each request ended, and the tokens that each got, step by step. `adds`:
    step to name, prompt, max_tokens and fields of requests."""
    ends: dict[str, int] = {}
    shares: list[dict[str, int]] = []
    with launch_scripted(**sections) as engine:
        core: Any = engine.engine._client._core  # type: ignore[attr-defined]
        schedule = core.parts.scheduler.schedule

        def watched() -> Any:
            scheduled = schedule()
            names = {slot: core.parts.table.at(slot).request_id for slot in scheduled.slots}
            shares.append(
                {names[slot].partition("-")[0]: count for slot, count, _, _ in scheduled.rows()}
            )
            return scheduled

        core._schedule_phase = watched
        for step in range(steps):
            for name, prompt, max_tokens, fields in adds.get(step, []):
                priority = fields.get("priority", 0)
                params = {key: fields[key] for key in fields if key != "priority"}
                engine.engine.add_request(
                    name, prompt, greedy(max_tokens, **params), priority=priority
                )
            ends |= {each.request_id: step for each in engine.engine.step() if each.finished}
            if step >= max(adds) and not engine.engine.has_unfinished_requests():
                break
    return ends, shares


@pytest.mark.parametrize("priorities", [(0, 0, 0), (0, 1, 100)])
def test_who_waits_for_a_prefix_keeps_its_slot(priorities: tuple[int, int, int]) -> None:
    first, second, last = ({"priority": priority} for priority in priorities)
    ends, _ = _drive(
        {
            0: [
                ("first", [*SHARED, 100], 40, first),
                ("second", [*SHARED, 101], 3, second),
                ("last", [200] * 5, 40, last),
            ]
        },
        cache={"num_blocks": 400},
        scheduler={
            "max_num_seqs": 2,
            "max_num_batched_tokens": 200,
            "policies": ["priority", "fcfs"],
        },
    )
    assert ends["second"] < 5 < ends["first"] < ends["last"]


def test_who_waits_for_a_prefix_keeps_its_blocks() -> None:
    ends, _ = _drive(
        {
            0: [
                ("first", [*SHARED, 100], 4, {}),
                ("second", [*SHARED, 101] + [3] * 60, 3, {}),
                ("last", [200] * 80, 40, {}),
            ]
        },
        cache={"num_blocks": 36},
        scheduler={"max_num_seqs": 8, "max_num_batched_tokens": 500},
    )
    assert ends["second"] < 10 < ends["last"]


def test_what_the_cache_has_is_not_waited_for() -> None:
    """Those that compute their whole prompt compute again what is cached."""
    shared = [7] * 200
    again = {
        step: [(f"whole{step}", [*shared, 100 + step], 1, {"prompt_logprobs": 0})]
        for step in range(10, 60, 2)
    }
    ends, _ = _drive(
        {0: [("before", [*shared, 400], 1, {})], **again, 13: [("late", [*shared, 500], 1, {})]},
        cache={"num_blocks": 2000},
        scheduler={"max_num_seqs": 16, "max_num_batched_tokens": 64},
    )
    assert ends["late"] <= ends["whole14"]


def test_room_for_prompts_is_not_taken_from_those_that_decode() -> None:
    ends, shares = _drive(
        {
            0: [(f"low{k}", [50 + k] * 5, 40, {"priority": 10}) for k in range(3)],
            3: [("long", [9] * 200, 5, {"priority": 5})],
            6: [("urgent", [8] * 40, 5, {"priority": 1})],
        },
        cache={"num_blocks": 4000},
        scheduler={
            "max_num_seqs": 16,
            "max_num_batched_tokens": 2048,
            "prefill_beside_decode": 8,
            "policies": ["priority", "fcfs"],
        },
        plugins_options={"priority": {"preempt_running": True}},
    )
    for name in ("low0", "low1", "low2"):
        got = [share[name] for share in shares if name in share]
        assert got == [5] + [1] * 39
    assert ends["urgent"] < ends["long"]


def test_those_that_decode_come_before_an_older_prompt() -> None:
    _, shares = _drive(
        {
            0: [(f"d{k}", [50 + k], 30, {"priority": 5}) for k in range(20)],
            3: [("long", [9] * 400, 3, {"priority": 0})],
        },
        cache={"num_blocks": 4000},
        scheduler={
            "max_num_seqs": 32,
            "max_num_batched_tokens": 40,
            "prefill_beside_decode": 32,
            "policies": ["priority", "fcfs"],
        },
    )
    assert [len(share) for share in shares[4:20]] == [21] * 16
    assert {share["long"] for share in shares[4:20]} == {20}
