"""The policy. Core process, main thread."""

from __future__ import annotations

from collections import OrderedDict

from hookspecs.contracts.kv_cache import EvictionContext, EvictionPolicy

__all__ = ["MOST_USES", "FrequencyEviction"]

MOST_USES = 16
"""Uses that count at most. It bounds how long a block outlasts its popularity, and a `pop`."""


class FrequencyEviction(EvictionPolicy):
    """Gives up the block with the lowest rank, of equal ones the one that was used least recently.

    rank = age when the block was last used + how often its content was used; and the age of the
    cache is the rank of the block that was given up last. Content that nobody asks for any more
    keeps its rank while that of newcomers rises, until they overtake it (LFU with dynamic aging:
    Arlitt et al., "Evaluating Content Management Techniques for Web Proxy Caches", Performance
    Evaluation Review 27(4), 2000).

    Every rank held is above the age by at most `MOST_USES`, or equal to it, so the blocks lie in a
    ring of `MOST_USES + 1` ordered dicts, and each call is O(1). Within a dict the order is that in
    which blocks came, so ends of prompts go before their beginnings.
    """

    def __init__(self, context: EvictionContext) -> None:
        super().__init__(context)
        self._uses = [0] * context.num_blocks
        """Of the content of each block, whether it is used now or not."""
        self._ring: list[OrderedDict[int, None]] = [OrderedDict() for _ in range(MOST_USES + 1)]
        self._place: dict[int, OrderedDict[int, None]] = {}
        """Of each block that could be given up, the dict that holds it."""
        self._age = 0

    def add(self, block: int) -> None:
        """A use of `block` has ended: the first one when its content was computed, another one
        when the content was found in the cache. Uses at the same time count once."""
        uses = self._uses[block] = min(self._uses[block] + 1, MOST_USES)
        place = self._place[block] = self._at(self._age + uses)
        place[block] = None

    def remove(self, block: int) -> None:
        """`block` is used again. KeyError if it was not added."""
        del self._place.pop(block)[block]

    def pop(self) -> int:
        """Take out the block to give up. It will hold other content, whose uses are counted from
        0. IndexError when empty."""
        if not self._place:
            raise IndexError("no unused cached block")
        while not self._at(self._age):
            self._age += 1
        block, _ = self._at(self._age).popitem(last=False)
        del self._place[block]
        self._uses[block] = 0
        return block

    def __len__(self) -> int:
        return len(self._place)

    def _at(self, rank: int) -> OrderedDict[int, None]:
        return self._ring[rank % len(self._ring)]
