"""The queue of waiting requests, in the total order."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush

from hookspecs.contracts.policy import OrderKey
from hookspecs.contracts.request_view import RequestView

__all__ = ["WaitingQueue", "WaitingRequest"]

_COMPACT_BEYOND = 64
"""Entries of removed requests that the heap may hold besides the live ones."""


class WaitingRequest:
    """A request with the key it was queued under."""

    __slots__ = ("key", "request")

    def __init__(self, key: OrderKey, request: RequestView) -> None:
        self.key = key
        self.request = request

    def __lt__(self, other: WaitingRequest) -> bool:
        return self.key < other.key


class WaitingQueue:
    """A heap; a removed request stays in it until its turn comes or many have piled up.

    Adding and taking cost O(log n), removing O(1) amortised.
    """

    def __init__(self) -> None:
        self._heap: list[WaitingRequest] = []
        self._live: dict[str, WaitingRequest] = {}

    def __len__(self) -> int:
        return len(self._live)

    def get(self, request_id: str) -> RequestView | None:
        """The waiting request of that id, if any."""
        entry = self._live.get(request_id)
        return entry.request if entry is not None else None

    def push(self, entry: WaitingRequest) -> None:
        """Queue a request; it must not be queued already."""
        self._live[entry.request.request_id] = entry
        heappush(self._heap, entry)

    def pop(self) -> WaitingRequest | None:
        """Take out the first request, None if there is none."""
        while self._heap:
            entry = heappop(self._heap)
            if self._live.get(entry.request.request_id) is entry:
                del self._live[entry.request.request_id]
                return entry
        return None

    def discard(self, request_id: str) -> bool:
        """Drop a request; whether it was queued."""
        if self._live.pop(request_id, None) is None:
            return False
        if len(self._heap) > 2 * len(self._live) + _COMPACT_BEYOND:
            self._heap = list(self._live.values())
            heapify(self._heap)
        return True

    def rekey(self, key: Callable[[RequestView], OrderKey]) -> None:
        """Ask for all keys anew."""
        for entry in self._live.values():
            entry.key = key(entry.request)
        self._heap = list(self._live.values())
        heapify(self._heap)
