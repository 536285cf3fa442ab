"""One lane of the queue of waiting requests: those that keep their places among each other."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Hashable
from operator import attrgetter

from hookspecs.contracts.policy import OrderKey
from hookspecs.contracts.request_view import RequestView

__all__ = ["Lane", "WaitingRequest"]


class WaitingRequest:
    """A request with the key it was queued under."""

    __slots__ = ("group", "key", "looked_at", "place", "request", "waited_at")

    def __init__(
        self,
        key: OrderKey,
        request: RequestView,
        *,
        group: Hashable = None,
        place: OrderKey | None = None,
    ) -> None:
        """`group` and `place`: see `PolicyStack.place`; without, all depends on the key."""
        self.key = key
        self.request = request
        self.group = group
        self.place = key if place is None else place
        """Its key among those of its group."""
        self.looked_at = 0
        """Number of the pass that passed it over last; 0: none."""
        self.waited_at = -1
        """Cached tokens of it when it last waited for another's prefix; -1: it never did."""

    def __lt__(self, other: WaitingRequest) -> bool:
        return self.place < other.place


class Lane:
    """A sorted list, and two pointers into it. Adding and removing cost O(log n) comparisons, and
    moving the pointers behind; finding the first skips what was passed over, once."""

    def __init__(self) -> None:
        self._order: list[WaitingRequest] = []
        # Places before which all were passed over since the pass, and since the round, beside.
        self._front = self._turn = 0
        self._pass = self._round = 0

    def __len__(self) -> int:
        return len(self._order)

    def push(self, entry: WaitingRequest) -> None:
        """Add a request."""
        insort(self._order, entry)
        place = self._place(entry)
        self._front = min(self._front, place)
        self._turn = min(self._turn, place)

    def discard(self, entry: WaitingRequest) -> None:
        """Remove a request that is there."""
        place = self._place(entry)
        del self._order[place]
        self._front -= place < self._front
        self._turn -= place < self._turn

    def rekey(self, key: Callable[[RequestView], OrderKey]) -> None:
        """Ask for all keys anew, and order by them."""
        for entry in self._order:
            entry.key = entry.place = key(entry.request)
        self._order.sort(key=attrgetter("place"))
        self._front = self._turn = 0

    def first(self, since: int) -> WaitingRequest | None:
        """The first request that was not passed over since a pass began."""
        if self._pass != since:
            self._pass, self._front = since, 0
        self._front = self._find(self._front, since)
        return self._order[self._front] if self._front < len(self._order) else None

    def next_in_turn(self, since: int) -> WaitingRequest | None:
        """The same for the pass that a round began with."""
        if self._round != since:
            self._round, self._turn = since, 0
        self._turn = self._find(self._turn, since)
        return self._order[self._turn] if self._turn < len(self._order) else None

    def _find(self, start: int, since: int) -> int:
        for place in range(start, len(self._order)):
            if self._order[place].looked_at < since:
                return place
        return len(self._order)

    def _place(self, entry: WaitingRequest) -> int:
        place = bisect_left(self._order, entry)
        if place < len(self._order) and self._order[place] is entry:
            return place
        return self._order.index(entry)  # keys that are not totally ordered, NaN for one
