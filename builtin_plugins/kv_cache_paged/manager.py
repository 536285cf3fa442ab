"""The `paged` KV cache manager: block tables by slot over one pool of blocks."""

from __future__ import annotations

from collections import Counter

import numpy as np

from builtin_plugins.kv_cache_paged.groups import group_shapes
from builtin_plugins.kv_cache_paged.pool import NULL_BLOCK, BlockPool
from builtin_plugins.kv_cache_paged.prefix import longest_prefix
from hookspecs.contracts.kv_cache import KVCacheCapability, KVCacheContext, KVCacheManager
from hookspecs.contracts.request_view import RequestView
from hookspecs.errors import InternalError
from hookspecs.types.columns import Int32Column
from hookspecs.types.kv import CachedPrefix
from hookspecs.types.stats import PrefixCacheStats

__all__ = ["PagedKVCacheManager"]


class PagedKVCacheManager(KVCacheManager):
    """One pool of blocks; prefix caching, sliding-window and hybrid groups.

    The tables of all groups have the same length at any time; where a window has passed, a
    table holds the null block. Costs depend on the blocks of the request at hand, never on the
    size of the pool. Core process, main thread.
    """

    capabilities = frozenset(KVCacheCapability)

    def __init__(self, context: KVCacheContext) -> None:
        super().__init__(context)
        config = context.kv_config
        self._requests = context.requests
        self._block_size = config.block_size
        self._groups = group_shapes(config, context.max_num_batched_tokens)
        self._windowed = [
            (group, shape) for group, shape in enumerate(self._groups) if shape.window is not None
        ]
        self._pool = BlockPool(config.num_blocks, context.eviction)
        self._caching = context.config.cache.enable_prefix_caching
        slots = context.max_num_seqs
        self._tables: list[list[list[int]]] = [[[] for _ in range(slots)] for _ in self._groups]
        # Of each group and slot: the leading blocks of the table that are null.
        self._passed = [[0] * slots for _ in self._groups]
        self._capacity = np.zeros(slots, dtype=np.int32)
        # Leading blocks that a slot took over from the cache, and so did not write.
        self._hits = [0] * slots
        # Complete blocks of a slot that other requests may find already.
        self._published = [0] * slots
        # Computed tokens with which the next one is complete.
        self._next_complete = np.full(slots, self._block_size, dtype=np.int32)
        self._stats = PrefixCacheStats()
        self._evictions_reported = 0

    @property
    def capacity(self) -> Int32Column:
        """int32[max_num_seqs]: tokens that fit into the blocks of each slot."""
        return self._capacity

    @property
    def num_free_blocks(self) -> int:
        """Blocks that `allocate` could give out now, unused cached ones included."""
        return self._pool.num_free

    @property
    def num_total_blocks(self) -> int:
        """All blocks but the null block."""
        return self._pool.num_total

    def can_ever_fit(self, num_tokens: int) -> bool:
        """Whether an empty cache could hold a request of that many tokens, computed in steps
        of at most `max_num_batched_tokens`."""
        return self.blocks_for(num_tokens) <= self._pool.num_total

    def blocks_for(self, num_tokens: int) -> int:
        """The most blocks that a request of that many tokens holds at a time."""
        return sum(group.most_blocks(num_tokens) for group in self._groups)

    def lookup(self, request: RequestView) -> CachedPrefix:
        """The longest cached prefix that leaves at least one token to compute."""
        if not self._caching or request.computes_whole_prompt:
            return CachedPrefix()
        limit = (request.num_tokens - 1) // self._block_size
        return longest_prefix(self._pool, self._groups, request.block_hashes, limit)

    def can_allocate(
        self, request: RequestView, num_tokens: int, cached: CachedPrefix | None = None
    ) -> bool:
        """Whether `allocate` with the same arguments would succeed. No side effect."""
        pool, target = self._pool, -(-num_tokens // self._block_size)
        available = pool.num_free
        if cached is None:
            held = len(self._tables[0][request.slot])
            if self._windowed:
                leaving = self._leaving(request.slot)
                available += sum(pool.references(block) == 1 for block in leaving)
        else:
            held = cached.num_tokens // self._block_size
            # Hits that nobody uses are counted as free, but will be in use.
            available -= sum(
                block != NULL_BLOCK and pool.references(block) == 0
                for blocks in cached.blocks
                for block in blocks
            )
        return max(0, target - held) * len(self._groups) <= available

    def allocate(
        self, request: RequestView, num_tokens: int, cached: CachedPrefix | None = None
    ) -> tuple[list[int], ...] | None:
        """Grow the block tables of a running request to hold its first `num_tokens` tokens.

        With `cached`: returns the whole tables, else what was appended to each. Blocks that a
        window has passed, by the request's `num_computed_tokens`, are freed first. None, with
        nothing changed, when blocks are short.
        """
        if not self.can_allocate(request, num_tokens, cached):
            return None
        slot = request.slot
        if cached is not None:
            self._take_over(slot, cached)
        elif self._windowed:
            self._pass_window(slot)
        target = -(-num_tokens // self._block_size)
        take = self._pool.take
        appended = []
        for tables in self._tables:
            table = tables[slot]
            new = [take() for _ in range(target - len(table))]
            table += new
            appended.append(new)
        self._capacity[slot] = len(self._tables[0][slot]) * self._block_size
        if cached is None:
            return tuple(appended)
        return tuple(list(tables[slot]) for tables in self._tables)

    def commit(self, slots: Int32Column) -> None:
        """Make the complete blocks of these slots available to other requests. Only rows that
        completed a block cost more than an array operation."""
        if not self._caching:
            return
        index = slots.astype(np.intp)
        computed = self._requests.num_computed_tokens[index]
        complete = computed >= self._next_complete[index]
        if np.count_nonzero(complete):
            for slot, tokens in zip(
                index[complete].tolist(), computed[complete].tolist(), strict=True
            ):
                self._publish(slot, tokens // self._block_size)

    def free(self, slot: int, *, keep: bool = True) -> None:
        """Take back all blocks of a slot, last first over all groups. Without `keep` those that
        the request wrote are forgotten, those that it only read stay cached."""
        tables = [tables[slot] for tables in self._tables]
        hits = self._hits[slot]
        if not keep:
            self._forget_passed(slot, hits)
        for index in range(len(tables[0]) - 1, -1, -1):
            for table in tables:
                if table[index] != NULL_BLOCK:
                    self._pool.release(table[index], keep=keep or index < hits)
        for group, table in enumerate(tables):
            table.clear()
            self._passed[group][slot] = 0
        self._capacity[slot] = 0
        self._hits[slot] = 0
        self._set_published(slot, 0)

    def reset_prefix_cache(self) -> bool:
        """Forget all cached content. False, with nothing changed, while blocks are in use."""
        if self.blocks_in_use():
            return False
        self._pool.forget_all()
        self._stats.resets += 1
        return True

    def take_stats(self) -> PrefixCacheStats:
        """Statistics since the last call."""
        stats, self._stats = self._stats, PrefixCacheStats()
        stats.evictions = self._pool.num_evictions - self._evictions_reported
        self._evictions_reported = self._pool.num_evictions
        return stats

    def record_lookup(self, request: RequestView, cached: CachedPrefix) -> None:
        """Count a lookup whose result was used; nothing where the cache was not searched."""
        if not self._caching or request.computes_whole_prompt:
            return
        stats = self._stats
        if request.num_preemptions:
            stats.preempted_requests += 1
            stats.preempted_queries += request.num_tokens
            stats.preempted_hits += cached.num_tokens
        else:
            stats.requests += 1
            stats.queries += request.num_tokens
            stats.hits += cached.num_tokens

    def check(self) -> None:
        """Verify that tables, reference counts, free list, index and eviction policy agree.
        O(num_blocks); InternalError naming what does not."""
        references: Counter[int] = Counter()
        for group, tables in enumerate(self._tables):
            for slot, table in enumerate(tables):
                if len(table) * self._block_size != self._capacity[slot]:
                    raise InternalError(
                        f"slot {slot} has {len(table)} blocks in group {group}, but a capacity "
                        f"of {self._capacity[slot]} tokens at {self._block_size} a block"
                    )
                passed = self._passed[group][slot]
                if any(table[:passed]) or NULL_BLOCK in table[passed:]:
                    raise InternalError(
                        f"slot {slot} should have null blocks in group {group} exactly before "
                        f"block {passed}: {table}"
                    )
                references.update(table[passed:])
        self._pool.verify(references)

    def blocks_in_use(self) -> int:
        """Blocks held by requests; 0 when none runs."""
        return self._pool.num_total - self._pool.num_free

    def _leaving(self, slot: int) -> list[int]:
        """Blocks of a slot that no token to come needs, of all groups."""
        blocks: list[int] = []
        for group, shape in self._windowed:
            computed = int(self._requests.num_computed_tokens[slot])
            table, passed = self._tables[group][slot], self._passed[group][slot]
            blocks += table[passed : min(len(table), shape.first_needed(computed))]
        return blocks

    def _pass_window(self, slot: int) -> None:
        """Free the blocks that the windows have passed, and replace them by null."""
        for group, shape in self._windowed:
            computed = int(self._requests.num_computed_tokens[slot])
            table, passed = self._tables[group][slot], self._passed[group][slot]
            end = min(len(table), shape.first_needed(computed))
            for index in range(end - 1, passed - 1, -1):
                self._pool.release(table[index])
                table[index] = NULL_BLOCK
            self._passed[group][slot] = max(passed, end)

    def _forget_passed(self, slot: int, hits: int) -> None:
        """Forget what a slot wrote and a window has passed. The table does not name these blocks
        any more, so equal ones of other requests go too."""
        published = self._published[slot]
        for group, shape in self._windowed:
            end = min(self._passed[group][slot], published)
            if end > hits:
                hashes = self._requests.at(slot).block_hashes
                for index in range(hits, end):
                    self._pool.forget_key(hashes[index] + shape.key_suffix)

    def _take_over(self, slot: int, cached: CachedPrefix) -> None:
        """Start the tables of a slot with a prefix. All hits are touched before any block is
        taken, so that none of them can be evicted for it."""
        if self._capacity[slot]:
            raise InternalError(f"slot {slot} starts a request, but still holds blocks")
        for group, blocks in enumerate(cached.blocks):
            for block in blocks:
                if block != NULL_BLOCK:
                    self._pool.touch(block)
            self._tables[group][slot] = list(blocks)
            self._passed[group][slot] = blocks.count(NULL_BLOCK)
        self._hits[slot] = hits = cached.num_tokens // self._block_size
        self._set_published(slot, hits)

    def _publish(self, slot: int, num_complete: int) -> None:
        hashes = self._requests.at(slot).block_hashes
        start, end = self._published[slot], min(num_complete, len(hashes))
        for shape, tables in zip(self._groups, self._tables, strict=True):
            table = tables[slot]
            for index in range(start, end):
                if table[index] != NULL_BLOCK:
                    self._pool.publish(table[index], hashes[index] + shape.key_suffix)
        self._set_published(slot, max(start, end))

    def _set_published(self, slot: int, num_blocks: int) -> None:
        self._published[slot] = num_blocks
        self._next_complete[slot] = (num_blocks + 1) * self._block_size
