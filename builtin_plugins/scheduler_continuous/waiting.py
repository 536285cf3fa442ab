"""The queue of waiting requests, in the total order."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable
from operator import attrgetter

from hookspecs.contracts.policy import OrderKey
from hookspecs.contracts.request_view import RequestView

__all__ = ["WaitingQueue", "WaitingRequest"]


class WaitingRequest:
    """A request with the key it was queued under."""

    __slots__ = ("key", "looked_at", "request")

    def __init__(self, key: OrderKey, request: RequestView) -> None:
        self.key = key
        self.request = request
        self.looked_at = 0
        """Number of the pass that passed it over last; 0: none."""

    def __lt__(self, other: WaitingRequest) -> bool:
        return self.key < other.key


class WaitingQueue:
    """A sorted list that passes walk over, in two ways.

    `first` starts at the beginning in every pass. `next_in_turn` goes on where the pass before
    stopped, until all have had their turn and a round begins anew. What a pass does not take out
    it marks by `pass_over`. Adding and removing cost O(log n) comparisons, and moving the
    pointers behind; a walk costs what it returns, and besides skips what it has marked.
    """

    def __init__(self) -> None:
        self._order: list[WaitingRequest] = []
        self._by_id: dict[str, WaitingRequest] = {}
        self._pass = 0
        self._round = 1
        """Number of the pass that the round began with."""
        # Places before which all are marked, in this pass and in this round.
        self._front = 0
        self._turn = 0

    def __len__(self) -> int:
        return len(self._order)

    def get(self, request_id: str) -> RequestView | None:
        """The waiting request of that id, if any."""
        entry = self._by_id.get(request_id)
        return entry.request if entry is not None else None

    def push(self, entry: WaitingRequest) -> None:
        """Queue a request; it must not be queued already."""
        self._by_id[entry.request.request_id] = entry
        insort(self._order, entry)
        place = self._place(entry)
        self._front = min(self._front, place)
        self._turn = min(self._turn, place)

    def discard(self, request_id: str) -> bool:
        """Drop a request; whether it was queued."""
        entry = self._by_id.pop(request_id, None)
        if entry is None:
            return False
        place = self._place(entry)
        del self._order[place]
        self._front -= place < self._front
        self._turn -= place < self._turn
        return True

    def rekey(self, key: Callable[[RequestView], OrderKey]) -> None:
        """Ask for all keys anew."""
        for entry in self._order:
            entry.key = key(entry.request)
        self._order.sort(key=attrgetter("key"))
        self._front = self._turn = 0

    def begin_pass(self) -> None:
        """A pass begins: all are there for `first`, and for `next_in_turn` those that had no turn
        in this round."""
        self._pass += 1
        self._front = 0

    def end_round(self) -> None:
        """In the next pass all are there for `next_in_turn` too."""
        self._round = self._pass + 1
        self._turn = 0

    def pass_over(self, entry: WaitingRequest) -> None:
        """A request stays where it is; this pass does not return it again."""
        entry.looked_at = self._pass

    def first(self) -> WaitingRequest | None:
        """The first request that this pass has not passed over."""
        self._front, entry = self._find(self._front, self._pass)
        return entry

    def next_in_turn(self) -> WaitingRequest | None:
        """The first request that no pass of this round has passed over."""
        self._turn, entry = self._find(self._turn, self._round)
        return entry

    def _find(self, start: int, since: int) -> tuple[int, WaitingRequest | None]:
        """Place and entry of the first from `start` on that was not passed over since a pass."""
        for place in range(start, len(self._order)):
            entry = self._order[place]
            if entry.looked_at < since:
                return place, entry
        return len(self._order), None

    def _place(self, entry: WaitingRequest) -> int:
        place = bisect_left(self._order, entry)
        if place < len(self._order) and self._order[place] is entry:
            return place
        return self._order.index(entry)  # keys that are not totally ordered, NaN for one
