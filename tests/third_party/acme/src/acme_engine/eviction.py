"""The eviction policy: a stack."""

from hookspecs.contracts.kv_cache import EvictionContext, EvictionPolicy


class NewestFirstEviction(EvictionPolicy):
    """Gives up the block that became unused last. A dict keeps its order: all is O(1)."""

    def __init__(self, context: EvictionContext) -> None:
        super().__init__(context)
        self._unused: dict[int, None] = {}

    def add(self, block: int) -> None:
        """Nobody uses `block` any more."""
        self._unused[block] = None

    def remove(self, block: int) -> None:
        """`block` is used again."""
        del self._unused[block]

    def pop(self) -> int:
        """The newest; IndexError when empty."""
        if not self._unused:
            raise IndexError("no block can be given up")
        return self._unused.popitem()[0]

    def __len__(self) -> int:
        """Blocks that could be given up."""
        return len(self._unused)
