"""The queue alone, against a sorted list."""

from __future__ import annotations

from typing import cast

from hookspecs.contracts.request_view import RequestView
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from reserving_scheduler.waiting import Queued, WaitingQueue


class Named:
    """All that the queue knows of a request."""

    def __init__(self, request_id: str) -> None:
        self.request_id = request_id


def named(request_id: str) -> RequestView:
    return cast(RequestView, Named(request_id))


class AgainstAList(RuleBasedStateMachine):
    """Ids are used again after their request is gone, as in an engine."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = WaitingQueue()
        self.model: list[Queued] = []
        self.arrivals = 0

    @rule(place=st.integers(-5, 5), name=st.sampled_from("abcdefgh"))
    def push(self, place: int, name: str) -> None:
        if all(queued.request.request_id != name for queued in self.model):
            queued = Queued((place, self.arrivals), named(name))
            self.arrivals += 1
            self.queue.push(queued)
            self.model.append(queued)

    @precondition(lambda self: self.model)
    @rule(taken=st.integers(1, 8), kept=st.integers(0, 8))
    def take(self, taken: int, kept: int) -> None:
        """As a step does: it takes some, still counted, starts a few, and puts back the others."""
        some = [self.queue.take() for _ in range(taken)]
        expected = sorted(self.model)[:taken]
        assert some == expected + [None] * (taken - len(expected))
        assert len(self.queue) == len(self.model)
        for place, queued in enumerate(some[: len(expected)]):
            assert queued is not None
            if place < kept:
                self.queue.put_back(queued)
            else:
                self.queue.discard(queued.request.request_id)
                self.model.remove(queued)

    @rule(name=st.sampled_from("abcdefgh"), times=st.integers(0, 100))
    def discard(self, name: str, times: int) -> None:
        for _ in range(times):
            self.queue.discard(name)
            self.queue.push(Queued((9, self.arrivals), named(name)))
            self.arrivals += 1
        self.queue.discard(name)
        self.model = [queued for queued in self.model if queued.request.request_id != name]

    @rule(factor=st.sampled_from([-1, 1, 2]))
    def rekey(self, factor: int) -> None:
        keys = {q.request.request_id: (q.key[0] * factor, q.key[1]) for q in self.model}
        self.queue.rekey(lambda request: keys[request.request_id])
        self.model = [Queued(keys[q.request.request_id], q.request) for q in self.model]

    @invariant()
    def agrees(self) -> None:
        assert len(self.queue) == len(self.model)
        for queued in self.model:
            assert self.queue.get(queued.request.request_id) is queued.request

    def teardown(self) -> None:
        assert [self.queue.take() for _ in self.model] == sorted(self.model)
        assert self.queue.take() is None


TestAgainstAList = AgainstAList.TestCase
