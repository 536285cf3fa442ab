"""`deadline`: earliest deadline first, and an end for requests that missed theirs."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from math import inf

from hookspecs.contracts.policy import (
    OrderKey,
    PolicyContext,
    SchedulerView,
    SchedulingPolicy,
)
from hookspecs.contracts.request_view import RequestView
from hookspecs.types.request import FinishReason, RequestStatus

__all__ = ["DeadlinePolicy"]

_COMPACT_BEYOND = 64
"""Entries of ended requests that the heap may hold besides those that still count."""


class DeadlinePolicy(SchedulingPolicy):
    """Orders by `deadline`; requests without one come last.

    A deadline is the latest time to start. A request that was preempted has started in time,
    so it is not ended. A step costs O(1) while no deadline passes: deadlines lie in a heap.
    """

    def __init__(self, context: PolicyContext) -> None:
        super().__init__(context)
        self._heap: list[tuple[float, int, str]] = []
        self._pending: dict[str, RequestView] = {}

    def order_key(self, request: RequestView, view: SchedulerView) -> OrderKey:
        """(deadline,), or (inf,) without one."""
        deadline = request.deadline
        if deadline is None:
            return (inf,)
        if request.status is RequestStatus.WAITING and request.request_id not in self._pending:
            self._pending[request.request_id] = request
            heappush(self._heap, (deadline, request.arrival, request.request_id))
        return (deadline,)

    def expire(self, view: SchedulerView) -> Iterable[str]:
        """Requests that have not started by their deadline, earliest deadline first."""
        expired = []
        while self._heap and self._heap[0][0] < view.now:
            request = self._pending.pop(heappop(self._heap)[2], None)
            if request is not None and request.status is RequestStatus.WAITING:
                expired.append(request.request_id)
        return expired

    def on_finish(self, request: RequestView, reason: FinishReason) -> None:
        """Forget it. Its heap entry goes when many such have piled up."""
        self._pending.pop(request.request_id, None)
        if len(self._heap) > 2 * len(self._pending) + _COMPACT_BEYOND:
            self._heap = [entry for entry in self._heap if entry[2] in self._pending]
            heapify(self._heap)
