"""Statistics and eviction of the prefix cache, and its absence."""

from __future__ import annotations

from framework.conformance.base import lacking, requires
from framework.conformance.suites.kv_cache_manager.base import PROMPT, KvCacheManagerPart, is_empty
from framework.conformance.worlds.hand_kernel import HandKernel
from framework.conformance.worlds.makers import PartMaker
from framework.conformance.worlds.told_eviction import ToldEviction
from hookspecs.contracts.kv_cache import KVCacheCapability
from hookspecs.types.stats import PrefixCacheStats

__all__ = ["Eviction"]


class Eviction(KvCacheManagerPart):
    """The prefix cache counts what it finds, and gives up what the eviction policy says."""

    @requires(KVCacheCapability.PREFIX_CACHING)
    def test_statistics_add_up(self, make: PartMaker) -> None:
        """Requires the capability prefix_caching.
        Does: starts requests with and without hits, resumes one, fills the cache, and resets it.
        Must: count each recorded lookup once, resumed ones apart, evictions and resets, and begin
        anew after each report.
        """
        kernel = HandKernel(make, num_blocks=8)
        kernel.compute(kernel.add(PROMPT, 1))
        request = kernel.add([*PROMPT, 1, 2], 3)
        kernel.compute(request)
        kernel.preempt(request)
        kernel.compute(request)
        stats = kernel.kv.take_stats()
        counted = (stats.requests, stats.queries, stats.hits)
        assert counted == (2, 26, 12), f"requests, queries and hits are {counted}, not (2, 26, 12)"
        resumed = (stats.preempted_requests, stats.preempted_queries, stats.preempted_hits)
        assert resumed == (1, 15, 12), f"those of a resumed request are {resumed}, not (1, 15, 12)"
        assert (stats.evictions, stats.resets) == (0, 0), f"nothing was evicted or reset: {stats}"
        kernel.abort(request)
        kernel.compute(kernel.add(28, 1))
        assert kernel.kv.reset_prefix_cache()
        stats = kernel.kv.take_stats()
        assert stats.evictions >= 2 and stats.resets == 1, (
            f"{stats.evictions} evictions and {stats.resets} resets; 7 blocks were given out, of "
            "which at most 5 were not cached, and 1 reset was made"
        )
        stats = kernel.kv.take_stats()
        assert stats == PrefixCacheStats(), f"what was reported is reported again: {stats}"

    @requires(KVCacheCapability.PREFIX_CACHING)
    def test_the_eviction_policy_decides(self, make: PartMaker) -> None:
        """Requires the capability prefix_caching.
        Does: fills the cache with two prompts, and needs the blocks of one for a third, with an
        eviction policy that gives up the first, then with one that gives up the second.
        Must: give up the blocks that the policy names.
        """
        for victim in (0, 1):
            eviction = ToldEviction(5)
            kernel = HandKernel(make, num_blocks=4, eviction=eviction)
            prompts = [list(range(start, start + 8)) for start in (200, 300)]
            for prompt in prompts:
                kernel.compute(kernel.add(prompt, 1))
            probes = [kernel.add([*prompt, 1]) for prompt in prompts]
            eviction.preferred = set(kernel.kv.lookup(probes[victim]).blocks[0])
            kernel.compute(kernel.add(8, 1))
            found = [kernel.kv.lookup(probe).num_tokens for probe in probes]
            expected = [0 if index == victim else 8 for index in (0, 1)]
            assert found == expected, (
                f"{found} tokens of two prompts are still cached, not {expected}: the policy of "
                "cache.eviction chose others"
            )

    @requires(KVCacheCapability.PREFIX_CACHING)
    def test_the_eviction_policy_is_told_in_order(self, make: PartMaker) -> None:
        """Requires the capability prefix_caching.
        Does: watches the calls of the eviction policy while requests share, end and are evicted.
        Must: add what nobody uses any more, of each request its last block first, remove what is
        used again, and pop only what is there.
        """
        eviction = ToldEviction(13)
        kernel = HandKernel(make, num_blocks=12, eviction=eviction)
        first = kernel.add(PROMPT, 9)
        kernel.compute(first)
        table = list(kernel.tables(first)[0][:3])
        kernel.abort(first)
        order = [block for block in eviction.added if block in table]
        assert order == table[::-1], f"blocks {table} of a request were added as {order}"
        users = [kernel.add([*PROMPT, number], 9) for number in range(2)]
        kernel.compute(*users)
        held = [block for block in table if block in eviction.held]
        assert not held, f"blocks {held} are used again, and could be given up"
        kernel.abort(users[0])
        held = [block for block in table if block in eviction.held]
        assert not held, f"blocks {held} could be given up, and another still uses them"
        kernel.abort(users[1])
        assert set(table) <= set(eviction.held), f"of {table} only {list(eviction.held)} are held"
        for number in range(4):
            kernel.compute(kernel.add([*range(400 + 50 * number, 430 + 50 * number)], 1))

    def test_caching_can_be_turned_off(self, make: PartMaker) -> None:
        """Requires nothing.
        Does: runs a prompt twice with cache.enable_prefix_caching off.
        Must: find nothing, count no hits, and allow a reset while nothing runs.
        """
        kernel = HandKernel(make, num_blocks=16, enable_prefix_caching=False)
        kernel.compute(kernel.add(PROMPT, 1))
        request = kernel.add([*PROMPT, 1], 1)
        found = kernel.kv.lookup(request)
        assert is_empty(found), f"{found} was found with cache.enable_prefix_caching off"
        kernel.compute(request)
        hits = kernel.kv.take_stats().hits
        assert hits == 0, f"{hits} hits were counted with cache.enable_prefix_caching off"
        assert kernel.kv.reset_prefix_cache() is True, "a reset was refused, though nothing runs"

    @lacking(KVCacheCapability.PREFIX_CACHING)
    def test_without_prefix_caching_nothing_is_found(self, make: PartMaker) -> None:
        """Requires a manager that does not declare prefix_caching.
        Does: runs a prompt twice, with cache.enable_prefix_caching on.
        Must: find nothing, count no hits, and allow a reset while nothing runs.
        """
        kernel = HandKernel(make, num_blocks=16)
        kernel.compute(kernel.add(PROMPT, 1))
        request = kernel.add([*PROMPT, 1], 1)
        found = kernel.kv.lookup(request)
        assert is_empty(found), f"{found} was found, and prefix_caching is not declared"
        kernel.compute(request)
        hits = kernel.kv.take_stats().hits
        assert hits == 0, f"{hits} hits were counted, and prefix_caching is not declared"
        assert kernel.kv.reset_prefix_cache() is True, "a reset was refused, though nothing runs"
