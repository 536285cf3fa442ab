"""The queue of waiting requests, in the total order."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from heapq import heapify, heappop, heappush

from builtin_plugins.scheduler_continuous.lane import Lane, WaitingRequest
from hookspecs.contracts.policy import OrderKey
from hookspecs.contracts.request_view import RequestView

__all__ = ["WaitingQueue"]

Head = Callable[[Lane], WaitingRequest | None]


class WaitingQueue:
    """Lanes that passes walk over together, in two ways.

    `first` starts at the beginning in every pass. `next_in_turn` goes on where the pass before
    stopped, until all have had their turn and a round begins anew. What a pass does not take out
    it marks by `pass_over`. Requests of one group (`PolicyStack.place`) are a lane, all others
    together another. Where keys change, those of the latter are all asked for anew in a pass, of a
    group only those of the requests that a walk comes to and of one behind them. So a pass costs
    O(groups), and O(log groups) for what it returns.
    """

    def __init__(self) -> None:
        self._lanes: dict[Hashable, Lane] = {}
        self._by_id: dict[str, WaitingRequest] = {}
        self._key: Callable[[RequestView], OrderKey] | None = None
        self._pass = 0
        self._round = 1
        """Number of the pass that the round began with."""
        self._walks: dict[str, _Walk] = {}
        """Of this pass; gone when something changed that they do not know of."""

    def __len__(self) -> int:
        return len(self._by_id)

    def get(self, request_id: str) -> RequestView | None:
        """The waiting request of that id, if any."""
        entry = self._by_id.get(request_id)
        return entry.request if entry is not None else None

    def push(self, entry: WaitingRequest) -> None:
        """Queue a request; it must not be queued already."""
        self._by_id[entry.request.request_id] = entry
        lane = self._lanes.get(entry.group)
        if lane is None:
            lane = self._lanes[entry.group] = Lane()
        lane.push(entry)
        self._walks.clear()

    def discard(self, request_id: str) -> bool:
        """Drop a request; whether it was queued."""
        entry = self._by_id.pop(request_id, None)
        if entry is None:
            return False
        lane = self._lanes[entry.group]
        lane.discard(entry)
        if not lane:
            del self._lanes[entry.group]
        if any(walk.last is not entry for walk in self._walks.values()):
            self._walks.clear()
        return True

    def rekey(self, key: Callable[[RequestView], OrderKey]) -> None:
        """Keys have changed: ask for them anew."""
        self._key = key
        lane = self._lanes.get(None)
        if lane is not None:
            lane.rekey(key)
        self._walks.clear()

    def begin_pass(self) -> None:
        """A pass begins: all are there for `first`, and for `next_in_turn` those that had no turn
        in this round."""
        self._pass += 1
        self._walks.clear()

    def end_round(self) -> None:
        """In the next pass all are there for `next_in_turn` too."""
        self._round = self._pass + 1
        self._walks.clear()

    def pass_over(self, entry: WaitingRequest) -> None:
        """A request stays where it is; this pass does not return it again."""
        entry.looked_at = self._pass

    def first(self) -> WaitingRequest | None:
        """The first request that this pass has not passed over."""
        return self._walk("first", lambda lane: lane.first(self._pass))

    def next_in_turn(self) -> WaitingRequest | None:
        """The first request that no pass of this round has passed over."""
        return self._walk("turn", lambda lane: lane.next_in_turn(self._round))

    def _walk(self, name: str, head: Head) -> WaitingRequest | None:
        walk = self._walks.get(name)
        if walk is None:
            walk = self._walks[name] = _Walk(self._lanes.values(), head, self._key)
        return walk.next()


class _Walk:
    """The first of all lanes, again and again: a heap of their heads."""

    def __init__(
        self, lanes: Iterable[Lane], head: Head, key: Callable[[RequestView], OrderKey] | None
    ) -> None:
        self.last: WaitingRequest | None = None
        """What `next` returned last: it may still be the head of its lane."""
        self._last_lane: Lane | None = None
        self._head = head
        self._key = key
        self._count = 0
        self._heads = [found for lane in lanes if (found := self._head_of(lane)) is not None]
        heapify(self._heads)

    def next(self) -> WaitingRequest | None:
        """The first request that is there; it stays until it is discarded or passed over."""
        if self._last_lane is not None:
            again = self._head_of(self._last_lane)
            self._last_lane = None
            if again is not None:
                heappush(self._heads, again)
        self.last = None
        if self._heads:
            _, _, self.last, self._last_lane = heappop(self._heads)
        return self.last

    def _head_of(self, lane: Lane) -> tuple[OrderKey, int, WaitingRequest, Lane] | None:
        entry = self._head(lane)
        if entry is None:
            return None
        if entry.group is not None and self._key is not None:
            entry.key = self._key(entry.request)
        self._count += 1
        return entry.key, self._count, entry, lane
