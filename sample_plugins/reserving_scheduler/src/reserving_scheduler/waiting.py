"""The queue of waiting requests. Core process, main thread."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from hookspecs.contracts.policy import OrderKey
from hookspecs.contracts.request_view import RequestView

__all__ = ["Queued", "WaitingQueue"]

_STALE_ALLOWED = 64
"""Entries of requests that are gone which the heap may hold besides as many as still wait."""


class Queued(NamedTuple):
    """A request under the key it has in the total order. Keys differ in the arrival at least, so
    that comparing two never reaches the requests."""

    key: OrderKey
    request: RequestView


class WaitingQueue:
    """A heap by key, and the requests by id: a request waits while its id is there. What does not
    wait any more is left in the heap until it is met or much of it has piled up, so discarding is
    O(1); adding and taking are O(log n)."""

    def __init__(self) -> None:
        self._heap: list[Queued] = []
        self._by_id: dict[str, Queued] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def get(self, request_id: str) -> RequestView | None:
        """The waiting request of that id, if there is one."""
        queued = self._by_id.get(request_id)
        return None if queued is None else queued.request

    def push(self, queued: Queued) -> None:
        """Add a request, which must not wait already."""
        self._by_id[queued.request.request_id] = queued
        heappush(self._heap, queued)
        if len(self._heap) > 2 * len(self._by_id) + _STALE_ALLOWED:
            self._rebuild(self._by_id.values())

    def discard(self, request_id: str) -> None:
        """Forget a request, if it waits."""
        self._by_id.pop(request_id, None)

    def take(self) -> Queued | None:
        """The first in the order; None when there is none. It still waits, and must be discarded
        or put back."""
        while self._heap:
            queued = heappop(self._heap)
            # Compared by identity: an id may be used again once its request has ended.
            if self._by_id.get(queued.request.request_id) is queued:
                return queued
        return None

    def put_back(self, queued: Queued) -> None:
        """Undo `take`."""
        heappush(self._heap, queued)

    def rekey(self, key: Callable[[RequestView], OrderKey]) -> None:
        """Ask for all keys anew."""
        self._rebuild([Queued(key(old.request), old.request) for old in self._by_id.values()])

    def _rebuild(self, entries: Iterable[Queued]) -> None:
        self._heap = list(entries)
        self._by_id = {queued.request.request_id: queued for queued in self._heap}
        heapify(self._heap)
