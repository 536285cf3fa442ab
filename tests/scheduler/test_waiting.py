"""The queue of waiting requests against a plain dict."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from builtin_plugins.scheduler_continuous.lane import WaitingRequest
from builtin_plugins.scheduler_continuous.waiting import WaitingQueue
from hookspecs.contracts.policy import OrderKey
from hookspecs.contracts.request_view import RequestView
from tests.mini_kernel import MiniKernel


@given(choices=st.randoms(use_true_random=False))
def test_passes_and_turns(choices: random.Random) -> None:
    kernel, queue = MiniKernel(), WaitingQueue()
    waiting: dict[str, WaitingRequest] = {}
    had_turn: set[str] = set()
    for _ in range(12):
        queue.begin_pass()
        passed: set[str] = set()
        for action in choices.choices(["push", "discard", "first", "turn", "rekey"], k=8):
            if action == "push":
                request = kernel.add(1)
                entry = WaitingRequest((choices.randrange(4), request.arrival), request)
                waiting[request.request_id] = entry
                queue.push(entry)
            elif action == "discard" and waiting:
                name = choices.choice(sorted(waiting))
                del waiting[name]
                assert queue.discard(name) and not queue.discard(name)
                assert queue.get(name) is None
            elif action == "rekey":
                queue.rekey(lambda request: (choices.randrange(4), request.arrival))
            elif action in ("first", "turn"):
                away = passed if action == "first" else had_turn
                left = [entry for name, entry in waiting.items() if name not in away]
                found = queue.first() if action == "first" else queue.next_in_turn()
                assert found is min(left, key=lambda entry: entry.key, default=None)
                if found is not None:
                    queue.pass_over(found)
                    passed.add(found.request.request_id)
                    had_turn.add(found.request.request_id)
        if choices.randrange(3) == 0:
            queue.end_round()
            had_turn.clear()
        assert len(queue) == len(waiting)


@given(choices=st.randoms(use_true_random=False))
def test_of_groups_the_first_ones_are_asked_for_keys(choices: random.Random) -> None:
    """The same order as if all were asked, whichever group's keys change together."""
    kernel, queue = MiniKernel(), WaitingQueue()
    groups: dict[str, str | None] = {}
    base: dict[str | None, int] = {}
    waiting: dict[str, WaitingRequest] = {}

    def key(request: RequestView) -> OrderKey:
        group = groups[request.request_id]
        alone = choices_of.get(request.request_id, 0) if group is None else 0
        return (base.get(group, 0), alone, request.arrival)

    choices_of: dict[str, int] = {}
    for _ in range(12):
        queue.begin_pass()
        base = {group: choices.randrange(4) for group in ("a", "b", "c")}
        choices_of = {name: choices.randrange(3) for name in groups}
        queue.rekey(key)
        passed: set[str] = set()
        for action in choices.choices(["push", "discard", "first"], k=8):
            if action == "push":
                request = kernel.add(1)
                group = groups[request.request_id] = choices.choice(["a", "b", "c", None])
                place = (request.arrival,) if group is not None else None
                entry = WaitingRequest(key(request), request, group=group, place=place)
                waiting[request.request_id] = entry
                queue.push(entry)
            elif action == "discard" and waiting:
                name = choices.choice(sorted(waiting))
                del waiting[name]
                assert queue.discard(name)
            elif action == "first":
                left = [entry for name, entry in waiting.items() if name not in passed]
                found = queue.first()
                assert found is min(left, key=lambda entry: key(entry.request), default=None)
                if found is not None and choices.randrange(2):
                    queue.pass_over(found)
                    passed.add(found.request.request_id)
        assert len(queue) == len(waiting)
