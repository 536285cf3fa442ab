"""Broken KV cache managers, made of the built-in one."""

from __future__ import annotations

import contextlib
import hashlib
import random
from typing import Any

import msgspec

from builtin_plugins.kv_cache_paged.eviction import LruEviction
from builtin_plugins.kv_cache_paged.groups import group_shapes
from builtin_plugins.kv_cache_paged.manager import PagedKVCacheManager
from builtin_plugins.kv_cache_paged.pool import BlockPool
from hookspecs.contracts.kv_cache import EvictionContext, KVCacheCapability, KVCacheContext
from hookspecs.contracts.request_view import RequestView
from hookspecs.types.kv import CachedPrefix, KVCacheGroup
from hookspecs.types.stats import PrefixCacheStats
from tests.conformance.mutants.mutant import Mutant, providing

__all__ = ["MUTANTS"]


class _Seen:
    """A request with other properties."""

    def __init__(self, request: RequestView, **properties: Any) -> None:
        self._request = request
        self.__dict__.update(properties)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._request, name)


class CountsTheNullBlock(PagedKVCacheManager):
    @property
    def num_total_blocks(self) -> int:
        return super().num_total_blocks + 1


class FreesForOthers(PagedKVCacheManager):
    """Double free: gives back a block that others still share."""

    def free(self, slot: int, *, keep: bool = True) -> None:
        for tables in self._tables:
            for block in tables[slot]:
                if self._pool.references(block) == 2:
                    self._pool.release(block)
        super().free(slot, keep=keep)


class KeepsCapacities(PagedKVCacheManager):
    """Stale state: a slot seems to have the blocks of the one before."""

    def free(self, slot: int, *, keep: bool = True) -> None:
        capacity = int(self._capacity[slot])
        super().free(slot, keep=keep)
        self._capacity[slot] = capacity

    def _take_over(self, slot: int, cached: CachedPrefix) -> None:
        self._capacity[slot] = 0
        super()._take_over(slot, cached)

    def check(self) -> None:
        pass


class EvictsInVain(PagedKVCacheManager):
    """Gives up what is cached before it notices that even so it is too little."""

    def allocate(
        self, request: RequestView, num_tokens: int, cached: CachedPrefix | None = None
    ) -> tuple[list[int], ...] | None:
        blocks = super().allocate(request, num_tokens, cached)
        if blocks is None:
            self._pool.forget_all()
        return blocks


class CountsHitsAsFree(PagedKVCacheManager):
    def can_allocate(
        self, request: RequestView, num_tokens: int, cached: CachedPrefix | None = None
    ) -> bool:
        if cached is None:
            return super().can_allocate(request, num_tokens)
        missing = -(-num_tokens // self._block_size) - cached.num_tokens // self._block_size
        return missing * len(self._groups) <= self._pool.num_free


class TakesBeforeItTouches(PagedKVCacheManager):
    """Evicts the hits for the blocks that come behind them."""

    def _take_over(self, slot: int, cached: CachedPrefix) -> None:
        for block in cached.blocks[0] if cached.blocks else ():
            if self._pool.references(block) == 0 and self._pool.num_free <= 5:
                self._pool.take()
        super()._take_over(slot, cached)


class LeaksABlock(PagedKVCacheManager):
    """Forgets to give back the last block of long requests."""

    def free(self, slot: int, *, keep: bool = True) -> None:
        for table in (tables[slot] for tables in self._tables):
            if len(table) > 2:
                table.pop()
        super().free(slot, keep=keep)

    def check(self) -> None:
        pass


class FreesOnce(PagedKVCacheManager):
    def free(self, slot: int, *, keep: bool = True) -> None:
        if not self._capacity[slot]:
            raise KeyError(slot)
        super().free(slot, keep=keep)


class PromisesTooMuch(PagedKVCacheManager):
    def blocks_for(self, num_tokens: int) -> int:
        return num_tokens // self._block_size


class FitsEverything(PagedKVCacheManager):
    def can_ever_fit(self, num_tokens: int) -> bool:
        return True


class FindsAllTokens(PagedKVCacheManager):
    """Leaves nothing to compute."""

    def lookup(self, request: RequestView) -> CachedPrefix:
        seen: Any = _Seen(request, num_tokens=request.num_tokens + 1)
        return super().lookup(seen)


class KeepsPromptsOnly(PagedKVCacheManager):
    """What was generated is not found."""

    def _publish(self, slot: int, num_complete: int) -> None:
        prompt = self.context.requests.at(slot).num_prompt_tokens
        super()._publish(slot, min(num_complete, prompt // self._block_size))


class PublishesAtOnce(PagedKVCacheManager):
    """Lets others find what is not written yet."""

    def allocate(
        self, request: RequestView, num_tokens: int, cached: CachedPrefix | None = None
    ) -> tuple[list[int], ...] | None:
        blocks = super().allocate(request, num_tokens, cached)
        if blocks is not None and self._caching:
            self._publish(request.slot, num_tokens // self._block_size)
        return blocks


class CountsEveryLookup(PagedKVCacheManager):
    def lookup(self, request: RequestView) -> CachedPrefix:
        found = super().lookup(request)
        self.record_lookup(request, found)
        return found


class KeepsWhatFailed(PagedKVCacheManager):
    def free(self, slot: int, *, keep: bool = True) -> None:
        super().free(slot)


class ForgetsAllThatFailedKnew(PagedKVCacheManager):
    """Forgets also what another wrote."""

    def free(self, slot: int, *, keep: bool = True) -> None:
        self._hits[slot] = 0
        super().free(slot, keep=keep)


class KeysByTokens(PagedKVCacheManager):
    """Leaks between tenants: makes keys of its own, of tokens alone."""

    def lookup(self, request: RequestView) -> CachedPrefix:
        seen: Any = _Seen(request, block_hashes=self._hashes_of(request))
        return super().lookup(seen)

    def _publish(self, slot: int, num_complete: int) -> None:
        hashes = self._hashes_of(self.context.requests.at(slot))
        for index in range(int(self._published[slot]), num_complete):
            for shape, tables in zip(self._groups, self._tables, strict=True):
                self._pool.publish(tables[slot][index], hashes[index] + shape.key_suffix)
        self._published[slot] = num_complete

    def _hashes_of(self, request: RequestView) -> list[bytes]:
        ends = range(self._block_size, request.num_tokens + 1, self._block_size)
        return [hashlib.sha256(repr(request.token_ids[:end]).encode()).digest() for end in ends]


class FindsForAll(PagedKVCacheManager):
    def lookup(self, request: RequestView) -> CachedPrefix:
        seen: Any = _Seen(request, computes_whole_prompt=False)
        return super().lookup(seen)


class ResetsInParts(PagedKVCacheManager):
    """Says False, and has forgotten what was not in use."""

    def reset_prefix_cache(self) -> bool:
        self._pool.forget_all()
        return super().reset_prefix_cache()


class ResetsNothing(PagedKVCacheManager):
    def reset_prefix_cache(self) -> bool:
        self._stats.resets += 1
        return self.blocks_in_use() == 0


class CountsResumedTwice(PagedKVCacheManager):
    def record_lookup(self, request: RequestView, cached: CachedPrefix) -> None:
        super().record_lookup(request, cached)
        if request.num_preemptions:
            self._stats.requests += 1


class ReportsTotals(PagedKVCacheManager):
    """Reports evictions since its start."""

    def take_stats(self) -> PrefixCacheStats:
        self._evictions_reported = 0
        return super().take_stats()


class EvictsAsItLikes(PagedKVCacheManager):
    """Ignores the policy of cache.eviction."""

    def __init__(self, context: KVCacheContext) -> None:
        own = EvictionContext(config=context.config, num_blocks=context.kv_config.num_blocks)
        super().__init__(msgspec.structs.replace(context, eviction=LruEviction(own)))


class FreesBeginningsFirst(PagedKVCacheManager):
    def free(self, slot: int, *, keep: bool = True) -> None:
        for tables in self._tables:
            tables[slot].reverse()
        super().free(slot, keep=keep)


class AlwaysCaches(PagedKVCacheManager):
    """Ignores cache.enable_prefix_caching."""

    def __init__(self, context: KVCacheContext) -> None:
        super().__init__(context)
        self._caching = True


class CachesUndeclared(PagedKVCacheManager):
    capabilities = frozenset({KVCacheCapability.SLIDING_WINDOW})


class KeepsAllBlocks(PagedKVCacheManager):
    """Frees nothing that left a window, whatever its capability says."""

    def _leaving(self, slot: int) -> list[int]:
        return []

    def _pass_window(self, slot: int) -> None:
        pass


class MixesUpGroups(PagedKVCacheManager):
    """Gives every group the blocks of the first one."""

    def lookup(self, request: RequestView) -> CachedPrefix:
        found = super().lookup(request)
        return CachedPrefix(found.num_tokens, found.blocks[:1] * len(found.blocks))


class FreesAWindowUnasked(PagedKVCacheManager):
    """Takes four tokens for enough, without declaring anything."""

    capabilities = frozenset({KVCacheCapability.PREFIX_CACHING})

    def __init__(self, context: KVCacheContext) -> None:
        super().__init__(context)
        groups = tuple(KVCacheGroup(g.layers, 4) for g in context.kv_config.groups)
        shape = msgspec.structs.replace(context.kv_config, groups=groups)
        self._groups = group_shapes(shape, context.max_num_batched_tokens)


class FindsByChance(PagedKVCacheManager):
    """Non-deterministic under a seed."""

    def lookup(self, request: RequestView) -> CachedPrefix:
        return super().lookup(request) if random.random() < 0.5 else CachedPrefix()


class RemembersRequests(PagedKVCacheManager):
    def __init__(self, context: KVCacheContext) -> None:
        super().__init__(context)
        self._seen: list[RequestView] = []

    def lookup(self, request: RequestView) -> CachedPrefix:
        self._seen.append(request)
        return super().lookup(request)


class SwallowsErrors(PagedKVCacheManager):
    """Takes any error for a lack of blocks."""

    def allocate(
        self, request: RequestView, num_tokens: int, cached: CachedPrefix | None = None
    ) -> tuple[list[int], ...] | None:
        with contextlib.suppress(Exception):
            return super().allocate(request, num_tokens, cached)
        return None

    def can_allocate(
        self, request: RequestView, num_tokens: int, cached: CachedPrefix | None = None
    ) -> bool:
        return not getattr(self.context.eviction, "fault", "") and super().can_allocate(
            request, num_tokens, cached
        )

    def free(self, slot: int, *, keep: bool = True) -> None:
        with contextlib.suppress(Exception):
            super().free(slot, keep=keep)

    def check(self) -> None:
        pass


class _TrustingPool(BlockPool):
    def take(self) -> int:
        if self._free:
            return super().take()
        block = self._eviction.pop()
        self._references[block] = 1
        return block


class TrustsEviction(PagedKVCacheManager):
    """Does not look at what it is told to give up, nor at its accounts."""

    def __init__(self, context: KVCacheContext) -> None:
        super().__init__(context)
        self._pool = _TrustingPool(context.kv_config.num_blocks, context.eviction)

    def check(self) -> None:
        pass


class CountsBlocksOneByOne(PagedKVCacheManager):
    """Its cost grows with the cache."""

    def can_allocate(
        self, request: RequestView, num_tokens: int, cached: CachedPrefix | None = None
    ) -> bool:
        unused = 0
        for block in range(1, self.num_total_blocks + 1):
            unused += self._pool.references(block) == 0
        return unused > 0 and super().can_allocate(request, num_tokens, cached)


class HitsByLength(PagedKVCacheManager):
    """Takes prompts of one length for one prompt."""

    def lookup(self, request: RequestView) -> CachedPrefix:
        seen: Any = _Seen(request, block_hashes=self._hashes(request))
        return super().lookup(seen)

    def _publish(self, slot: int, num_complete: int) -> None:
        hashes = self._hashes(self.context.requests.at(slot))
        for index in range(int(self._published[slot]), min(num_complete, len(hashes))):
            for shape, tables in zip(self._groups, self._tables, strict=True):
                if tables[slot][index]:
                    self._pool.publish(tables[slot][index], hashes[index] + shape.key_suffix)
        self._published[slot] = max(int(self._published[slot]), num_complete)

    def _hashes(self, request: RequestView) -> list[bytes]:
        return [bytes([index]) for index in range(request.num_tokens // self._block_size)]


def _mutant(fault: str, part: type[PagedKVCacheManager], *caught_by: str) -> Mutant:
    return Mutant("kv_cache_manager", fault, providing("kv_cache_manager", part), caught_by)


MUTANTS = [
    _mutant("counts the null block", CountsTheNullBlock, "test_a_new_cache_is_free"),
    _mutant("frees shared blocks", FreesForOthers, "test_random_use", "test_everything_ends"),
    _mutant("keeps capacities", KeepsCapacities, "test_capacity_follows_the_blocks"),
    _mutant("evicts in vain", EvictsInVain, "test_a_refused_allocation_changes_nothing"),
    _mutant("counts hits as free", CountsHitsAsFree, "test_can_allocate_tells_the_truth"),
    _mutant(
        "evicts hits for their request",
        TakesBeforeItTouches,
        "test_hits_are_not_given_out_with_themselves",
    ),
    _mutant("leaks blocks", LeaksABlock, "test_freeing_gives_all_back", "test_everything_ends"),
    _mutant("fails to free twice", FreesOnce, "test_freeing_gives_all_back"),
    _mutant("promises too much", PromisesTooMuch, "test_what_it_promises_suffices"),
    _mutant("fits everything", FitsEverything, "test_it_refuses_what_can_not_fit"),
    _mutant("finds all tokens", FindsAllTokens, "test_committed_prefixes_are_found"),
    _mutant("keeps prompts only", KeepsPromptsOnly, "test_committed_prefixes_are_found"),
    _mutant("publishes at once", PublishesAtOnce, "test_only_what_was_committed_is_found"),
    _mutant("counts every lookup", CountsEveryLookup, "test_lookup_has_no_side_effects"),
    _mutant("keeps what failed", KeepsWhatFailed, "test_failed_requests_leave_nothing"),
    _mutant(
        "forgets what others wrote",
        ForgetsAllThatFailedKnew,
        "test_failed_requests_leave_nothing",
    ),
    _mutant("leaks between tenants", KeysByTokens, "test_tenants_do_not_share"),
    _mutant("finds for all", FindsForAll, "test_what_is_computed_whole_finds_nothing"),
    _mutant("resets in parts", ResetsInParts, "test_a_reset_forgets_all_or_nothing"),
    _mutant("resets nothing", ResetsNothing, "test_a_reset_forgets_all_or_nothing"),
    _mutant("counts resumed requests twice", CountsResumedTwice, "test_statistics_add_up"),
    _mutant("reports totals", ReportsTotals, "test_statistics_add_up"),
    _mutant("evicts as it likes", EvictsAsItLikes, "test_the_eviction_policy_decides"),
    _mutant(
        "frees beginnings first",
        FreesBeginningsFirst,
        "test_the_eviction_policy_is_told_in_order",
    ),
    _mutant("caches always", AlwaysCaches, "test_caching_can_be_turned_off"),
    _mutant(
        "caches undeclared",
        CachesUndeclared,
        "test_without_prefix_caching_nothing_is_found",
    ),
    _mutant("keeps all blocks", KeepsAllBlocks, "test_blocks_that_left_a_window_are_freed"),
    _mutant("mixes up groups", MixesUpGroups, "test_prefixes_are_found_through_windows"),
    _mutant(
        "frees a window unasked",
        FreesAWindowUnasked,
        "test_without_windows_all_tokens_are_kept",
    ),
    _mutant("finds by chance", FindsByChance, "test_same_events_same_schedule"),
    _mutant("remembers requests", RemembersRequests, "test_requests_that_ended_are_forgotten"),
    _mutant(
        "swallows errors of others",
        SwallowsErrors,
        "test_errors_of_the_eviction_policy_come_out",
    ),
    _mutant("trusts the eviction policy", TrustsEviction, "test_a_wrong_eviction_is_noticed"),
    _mutant(
        "counts blocks one by one",
        CountsBlocksOneByOne,
        "test_costs_do_not_depend_on_the_size",
    ),
    _mutant("takes lengths for keys", HitsByLength, "test_tokens_do_not_depend_on_it"),
]
