"""The KV cache manager: a list of free blocks. Core process, main thread."""

import numpy as np

from hookspecs.contracts.kv_cache import KVCacheContext, KVCacheManager
from hookspecs.contracts.request_view import RequestView
from hookspecs.errors import InternalError
from hookspecs.types.columns import Int32Column
from hookspecs.types.kv import CachedPrefix
from hookspecs.types.stats import PrefixCacheStats


class PlainKVCacheManager(KVCacheManager):
    """Every group of layers gets its own block for each `block_size` tokens."""

    def __init__(self, context: KVCacheContext) -> None:
        super().__init__(context)
        self._block_size = context.kv_config.block_size
        self._num_groups = len(context.kv_config.groups)
        self._total = context.kv_config.num_blocks - 1
        self._free = list(range(self._total, 0, -1))  # block 0 is the null block
        self._tables: list[tuple[list[int], ...]] = [()] * context.max_num_seqs
        self._capacity = np.zeros(context.max_num_seqs, np.int32)

    @property
    def capacity(self) -> Int32Column:
        """int32[max_num_seqs], tokens."""
        return self._capacity

    @property
    def num_free_blocks(self) -> int:
        """Blocks in the list."""
        return len(self._free)

    @property
    def num_total_blocks(self) -> int:
        """All but the null block."""
        return self._total

    def blocks_in_use(self) -> int:
        """Blocks that are not in the list."""
        return self._total - len(self._free)

    def can_ever_fit(self, num_tokens: int) -> bool:
        """Whether an empty cache holds that many tokens."""
        return self.blocks_for(num_tokens) <= self._total

    def blocks_for(self, num_tokens: int) -> int:
        """Blocks of a request of that many tokens."""
        return self._num_groups * -(-num_tokens // self._block_size)

    def lookup(self, request: RequestView) -> CachedPrefix:
        """Nothing is ever cached."""
        return CachedPrefix()

    def _missing(self, slot: int, num_tokens: int) -> int:
        """Blocks that each group lacks for that many tokens; slot -1 has none yet."""
        held = int(self._capacity[slot]) // self._block_size if slot >= 0 else 0
        return max(0, -(-num_tokens // self._block_size) - held)

    def can_allocate(
        self, request: RequestView, num_tokens: int, cached: CachedPrefix | None = None
    ) -> bool:
        """Whether there are enough free blocks."""
        return self._num_groups * self._missing(request.slot, num_tokens) <= len(self._free)

    def allocate(
        self, request: RequestView, num_tokens: int, cached: CachedPrefix | None = None
    ) -> tuple[list[int], ...] | None:
        """The new blocks, which are the whole tables of a request that starts."""
        slot = request.slot
        missing = self._missing(slot, num_tokens)
        if self._num_groups * missing > len(self._free):
            return None
        new = tuple([self._free.pop() for _ in range(missing)] for _ in range(self._num_groups))
        held = self._tables[slot] or tuple([] for _ in range(self._num_groups))
        self._tables[slot] = tuple(old + more for old, more in zip(held, new, strict=True))
        self._capacity[slot] += missing * self._block_size
        return new

    def commit(self, slots: Int32Column) -> None:
        """Nothing is shared, so there is nothing to publish."""

    def free(self, slot: int, *, keep: bool = True) -> None:
        """Blocks go back, last first."""
        for table in self._tables[slot]:
            self._free.extend(reversed(table))
        self._tables[slot] = ()
        self._capacity[slot] = 0

    def reset_prefix_cache(self) -> bool:
        """Nothing is cached; the contract refuses while blocks are in use."""
        return self.blocks_in_use() == 0

    def take_stats(self) -> PrefixCacheStats:
        """There are no lookups to count."""
        return PrefixCacheStats()

    def record_lookup(self, request: RequestView, cached: CachedPrefix) -> None:
        """Not counted."""

    def check(self) -> None:
        """Every block is free or in one table, exactly once."""
        held = [block for tables in self._tables for table in tables for block in table]
        if sorted(held + self._free) != list(range(1, self._total + 1)):
            raise InternalError(
                f"{len(held)} blocks in tables and {len(self._free)} free ones are not the "
                f"{self._total} blocks of the cache, each once"
            )
