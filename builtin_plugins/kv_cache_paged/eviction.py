"""The `lru` eviction policy."""

from __future__ import annotations

from collections import OrderedDict

from hookspecs.contracts.kv_cache import EvictionContext, EvictionPolicy

__all__ = ["LruEviction"]


class LruEviction(EvictionPolicy):
    """Gives up the block that has been unused longest. Every call is O(1)."""

    def __init__(self, context: EvictionContext) -> None:
        super().__init__(context)
        # An OrderedDict and not a dict: taking the first of a dict walks over deleted entries.
        self._unused: OrderedDict[int, None] = OrderedDict()

    def add(self, block: int) -> None:
        """`block` becomes the one that was used last."""
        self._unused[block] = None

    def remove(self, block: int) -> None:
        """`block` is used again. KeyError if it was not added."""
        del self._unused[block]

    def pop(self) -> int:
        """Take out the block that was added first. IndexError when empty."""
        if not self._unused:
            raise IndexError("no unused cached block")
        return self._unused.popitem(last=False)[0]

    def __len__(self) -> int:
        return len(self._unused)
