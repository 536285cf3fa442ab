"""The queue of waiting requests against a plain dict."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from builtin_plugins.scheduler_continuous.waiting import WaitingQueue, WaitingRequest
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
