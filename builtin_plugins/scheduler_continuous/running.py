"""The running requests, in the total order."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from hookspecs.contracts.policy import OrderKey
from hookspecs.contracts.request_view import RequestView
from hookspecs.types.columns import Int32Column

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["RunningRequest", "RunningSet"]


class RunningRequest:
    """A request that holds a slot, with its key in the total order."""

    __slots__ = ("key", "request", "slot")

    def __init__(self, key: OrderKey, request: RequestView, slot: int) -> None:
        self.key = key
        self.request = request
        self.slot = slot


class RunningSet:
    """Running requests in order. The order and its column of slots are made again only after a
    change, so that a step without one costs nothing here."""

    def __init__(self) -> None:
        self._by_id: dict[str, RunningRequest] = {}
        self._order: list[RunningRequest] | None = []
        self._slots: Int32Column = np.zeros(0, dtype=np.int32)
        self._index: NDArray[np.intp] = np.zeros(0, dtype=np.intp)

    def __len__(self) -> int:
        return len(self._by_id)

    def __getitem__(self, request_id: str) -> RunningRequest:
        return self._by_id[request_id]

    @property
    def order(self) -> list[RunningRequest]:
        """All of them, first in the total order first. Not to be changed; a new list after
        each change."""
        order = self._order
        if order is None:
            order = self._order = sorted(self._by_id.values(), key=lambda entry: entry.key)
            # A new array: a step's output refers to the one before.
            self._slots = np.array([entry.slot for entry in order], dtype=np.int32)
            self._index = self._slots.astype(np.intp)
        return order

    @property
    def slots(self) -> Int32Column:
        """int32[running]: their slots, in the total order. Not to be changed."""
        _ = self.order
        return self._slots

    @property
    def columns(self) -> tuple[list[RunningRequest], Int32Column, NDArray[np.intp]]:
        """`order`, `slots`, and these as what columns are indexed by at the least cost."""
        return self.order, self._slots, self._index

    def add(self, entry: RunningRequest) -> None:
        """A request started."""
        self._by_id[entry.request.request_id] = entry
        self._order = None

    def discard(self, request_id: str) -> bool:
        """A request runs no more; whether it did."""
        if self._by_id.pop(request_id, None) is None:
            return False
        self._order = None
        return True

    def rekey(self, key: Callable[[RequestView], OrderKey]) -> None:
        """Ask for all keys anew."""
        for entry in self._by_id.values():
            entry.key = key(entry.request)
        self._order = None
