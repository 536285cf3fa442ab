"""Suite of KV cache managers: driven by hand, under a scheduler, and in a real engine."""

from __future__ import annotations

import gc
import random
from typing import Any

import numpy as np
import pytest

from framework.conformance.base import Conformance, lacking, requires
from framework.conformance.subject import Subject, merged
from framework.conformance.worlds.cost import lines_of
from framework.conformance.worlds.engines import run_prompts
from framework.conformance.worlds.hand_kernel import HandKernel
from framework.conformance.worlds.makers import PartMaker, kernel_around
from framework.conformance.worlds.mini_kernel import FULL, sliding
from framework.conformance.worlds.told_eviction import EvictionFault, ToldEviction
from framework.conformance.worlds.workload import play, random_sizes, seeds, workload
from framework.core.request import Request
from hookspecs.config import EngineConfig
from hookspecs.contracts.kv_cache import KVCacheCapability
from hookspecs.errors import FrameworkError
from hookspecs.types.kv import CachedPrefix, KVCacheGroup
from hookspecs.types.request import AdapterRef
from hookspecs.types.stats import PrefixCacheStats

__all__ = ["KvCacheManagerConformance"]

RUNS = 24
"""Random runs of a test."""
BOUND = 4000
"""Steps in which a workload that needs a few hundred must be done."""
PROMPT = list(range(100, 112))
"""Three blocks of four tokens."""
Groups = tuple[KVCacheGroup, ...]


class KvCacheManagerConformance(Conformance):
    """KV cache managers give out blocks, take them back, and mix up nothing."""

    kind = "kv_cache_manager"

    @pytest.fixture
    def make(self, subject: Subject) -> PartMaker:
        """Makes the manager, and the parts around it that the configuration names."""
        return PartMaker(subject)

    @pytest.fixture
    def shapes(self, subject: Subject) -> list[Groups]:
        """The groups of layers that the kernel gives to such a manager."""
        windows = KVCacheCapability.SLIDING_WINDOW in subject.capabilities
        return [(FULL,), (sliding(5),), (FULL, sliding(3))] if windows else [(FULL,)]

    # Accounts

    def test_a_new_cache_is_free(self, make: PartMaker, shapes: list[Groups]) -> None:
        """Requires nothing.
        Does: looks at a manager that has not been used.
        Must: have all blocks but the null block free, and a column of capacities that are 0.
        """
        for groups in shapes:
            kernel = HandKernel(make, num_blocks=20, max_num_seqs=5, groups=groups)
            kv = kernel.kv
            counts = (kv.num_total_blocks, kv.num_free_blocks, kv.blocks_in_use())
            assert counts == (20, 20, 0), (
                f"total, free and used blocks of a new cache of 20 and the null block: {counts}"
            )
            capacity = kv.capacity
            assert capacity.dtype == np.int32 and capacity.tolist() == [0] * 5, (
                f"capacity of a new cache is {capacity!r}; it must be int32[max_num_seqs], all 0"
            )
            assert _is_empty(kv.lookup(kernel.add(6))), "a new cache found a prefix"
            stats = kv.take_stats()
            assert stats == PrefixCacheStats(), f"a new cache has statistics: {stats}"

    def test_random_use(self, make: PartMaker, shapes: list[Groups], seed: int) -> None:
        """Requires nothing.
        Does: starts, grows, preempts, fails and aborts requests with common beginnings at random,
        and resets the cache, with few blocks.
        Must: give no block to two requests, agree with itself, and let its accounts add up.
        """
        for number in seeds(seed, RUNS):
            rng = random.Random(number)
            kernel = HandKernel(
                make,
                num_blocks=rng.randint(10, 24),
                max_num_seqs=4,
                groups=shapes[number % len(shapes)],
                enable_prefix_caching=rng.random() < 0.8,
            )
            try:
                _use(kernel, rng)
            except Exception as error:
                error.add_note(f"in the random run of seed {number}")
                raise

    def test_capacity_follows_the_blocks(self, make: PartMaker) -> None:
        """Requires nothing.
        Does: grows a request token by token beyond its blocks, and frees it.
        Must: have a capacity that holds what was asked for, is a multiple of the block size, and
        goes back to 0.
        """
        kernel = HandKernel(make, num_blocks=8)
        request = kernel.add(5, 20)
        kernel.compute(request)
        slot = request.slot
        for _ in range(12):
            kernel.compute(request)
            capacity = int(kernel.kv.capacity[slot])
            tokens = int(kernel.table.num_computed_tokens[slot])
            assert capacity >= tokens and capacity % 4 == 0, (
                f"a capacity of {capacity} tokens with {tokens} computed, at 4 a block"
            )
        kernel.abort(request)
        assert kernel.kv.capacity[slot] == 0, "a slot has a capacity although it was freed"

    def test_a_refused_allocation_changes_nothing(self, make: PartMaker) -> None:
        """Requires nothing.
        Does: asks for more blocks than are free, for a running request and for one that starts.
        Must: return None, keep all accounts and all cached content as they are, and go on.
        """
        kernel = HandKernel(make, num_blocks=6)
        kernel.compute(kernel.add(PROMPT, 1))
        probe = kernel.add([*PROMPT, 1])
        small, large = kernel.add(8, 16), kernel.add(20, 3)
        kernel.compute(small)
        before = _facts(kernel, probe)
        assert kernel.compute(large) == [large.request_id], "20 tokens in 4 free blocks of 4"
        assert _facts(kernel, probe) == before, "a refused start changed the cache"
        slot = small.slot
        assert kernel.kv.allocate(small, 100) is None, "100 tokens in a cache of 24"
        assert small.slot == slot and _facts(kernel, probe) == before, "a refusal changed the cache"
        kernel.compute(small)
        kernel.abort(small)
        assert not kernel.compute(large), "a request was refused although it fits"

    def test_can_allocate_tells_the_truth(self, make: PartMaker) -> None:
        """Requires nothing.
        Does: asks for every number of tokens whether it would succeed, with cached blocks that
        nobody uses, for a request that waits and for one that runs; then tries.
        Must: say yes exactly where allocate then gives blocks, and change nothing by the question.
        """
        for num_tokens in range(13, 33):
            kernel = HandKernel(make, num_blocks=7)
            kernel.compute(kernel.add(PROMPT, 1))
            kernel.compute(kernel.add(4, 9))
            request = kernel.add([*PROMPT, *range(20)], 1, fits=False)
            cached = kernel.kv.lookup(request)
            before = _facts(kernel, request)
            can = [kernel.kv.can_allocate(request, num_tokens, cached) for _ in range(2)]
            assert _facts(kernel, request) == before, "can_allocate changed the cache"
            kernel.table.start(request, cached.num_tokens)
            can.append(kernel.kv.can_allocate(request, num_tokens, cached))
            did = kernel.kv.allocate(request, num_tokens, cached) is not None
            assert can == [did] * 3, (
                f"can_allocate said {can} (waiting twice, running) for {num_tokens} tokens, of "
                f"which {cached.num_tokens} are cached and unused; allocate succeeded: {did}"
            )
            for more in range(num_tokens, 33):
                can_grow = kernel.kv.can_allocate(request, more) if did else False
                grew = did and kernel.kv.allocate(request, more) is not None
                assert can_grow == grew, f"can_allocate said {can_grow} for {more} tokens: {grew}"

    def test_hits_are_not_given_out_with_themselves(self, make: PartMaker) -> None:
        """Requires nothing.
        Does: starts a request whose cached beginning is all that the cache could give up, and
        that needs every other block.
        Must: keep the beginning, and give out each block once.
        """
        kernel = HandKernel(make, num_blocks=5)
        kernel.compute(kernel.add(PROMPT, 1))
        request = kernel.add([*PROMPT, *range(8)], 1, fits=False)
        cached = kernel.kv.lookup(request)
        kernel.table.start(request, cached.num_tokens)
        tables = kernel.kv.allocate(request, 20, cached)
        assert tables is not None, "20 tokens of a single request do not fit into 5 blocks of 4"
        assert len(set(tables[0])) == 5 and 0 not in tables[0], f"5 blocks were wanted: {tables}"
        kernel.kv.check()

    def test_freeing_gives_all_back(self, make: PartMaker, shapes: list[Groups]) -> None:
        """Requires nothing.
        Does: frees requests, the same slot twice, and slots in which nobody ran.
        Must: have all blocks free again, and do nothing where there is nothing to free.
        """
        for groups in shapes:
            kernel = HandKernel(make, num_blocks=24, groups=groups)
            requests = [kernel.add(length, 4) for length in (3, 9, 12)]
            kernel.compute(*requests)
            for slot in range(3, 8):
                kernel.kv.free(slot)
            kernel.check_accounts()
            slots = [request.slot for request in requests]
            for request in requests:
                kernel.abort(request)
            for slot in slots:
                kernel.kv.free(slot)
                kernel.kv.free(slot, keep=False)
            kernel.kv.check()
            kernel.check_accounts()

    def test_what_it_promises_suffices(self, make: PartMaker, shapes: list[Groups]) -> None:
        """Requires nothing.
        Does: runs requests at their largest length at once, as many as by blocks_for and
        num_total_blocks fit, and one alone that by can_ever_fit just fits.
        Must: have the blocks for them, and use no more than it said.
        """
        for groups in shapes:
            kernel = HandKernel(make, num_blocks=16 * len(groups), groups=groups)
            kv = kernel.kv
            needs = [kv.blocks_for(tokens) for tokens in range(60)]
            assert needs == sorted(needs) and needs[0] == 0, f"blocks_for(0), (1), … are {needs}"
            largest = max(n for n in range(1, 100) if kv.can_ever_fit(n))
            alone = kernel.add(largest - 1, 1)
            _run_to_end(kernel, alone)
            together = [kernel.add(9, 7), kernel.add(14, 3)]
            room = kv.num_total_blocks - sum(kv.blocks_for(r.max_total_tokens) for r in together)
            while room >= kv.blocks_for(12):
                together.append(kernel.add(5, 7))
                room -= kv.blocks_for(12)
            _run_to_end(kernel, *together)

    def test_it_refuses_what_can_not_fit(self, make: PartMaker) -> None:
        """Requires nothing.
        Does: asks for requests of one token more than all blocks hold together.
        Must: say that they never fit, with full attention.
        """
        kernel = HandKernel(make, num_blocks=9)
        assert kernel.kv.can_ever_fit(4), "4 tokens do not fit into 9 blocks of 4"
        assert not kernel.kv.can_ever_fit(37), "37 tokens fit into 9 blocks of 4, it says"

    # Prefix caching

    @requires(KVCacheCapability.PREFIX_CACHING)
    def test_committed_prefixes_are_found(self, make: PartMaker) -> None:
        """Requires the capability prefix_caching.
        Does: computes prompts and outputs, then looks up requests that begin like them.
        Must: find all complete blocks, but never all tokens of a request, with blocks for each.
        """
        kernel = HandKernel(make, num_blocks=64)
        first = kernel.add(PROMPT[:6], 7)
        _run_to_end(kernel, first)
        written = first.token_ids[:-1]
        for length in range(1, len(written) + 1):
            found = kernel.kv.lookup(kernel.add(written[:length]))
            expected = (length - 1) // 4 * 4
            assert found.num_tokens == expected, (
                f"of {length} tokens, all of them cached, {found.num_tokens} were found and not "
                f"{expected}"
            )
            blocks = sum(map(len, found.blocks))
            assert blocks == expected // 4, f"{blocks} blocks for {expected} tokens: {found}"
        other = kernel.kv.lookup(kernel.add([*written[:6], 1, 2, 3, 4])).num_tokens
        assert other == 4, f"of a prompt that differs after 6 tokens {other} were found, not 4"
        middle = kernel.kv.lookup(kernel.add([1, *written[1:]]))
        assert middle.num_tokens == 0, "a prompt with another first token was found"

    @requires(KVCacheCapability.PREFIX_CACHING)
    def test_only_what_was_committed_is_found(self, make: PartMaker) -> None:
        """Requires the capability prefix_caching.
        Does: looks prompts up while the step that computes them has not come back, and after only
        a part of them was computed.
        Must: find nothing that is not written yet.
        """
        kernel = HandKernel(make, num_blocks=64)
        writer, reader = kernel.add(PROMPT, 4), kernel.add([*PROMPT, 1])
        found: list[int] = []
        kernel.on_scheduled = lambda _: found.append(kernel.kv.lookup(reader).num_tokens)
        for tokens in (6, 5, 1):
            kernel.compute((writer, tokens))
        kernel.on_scheduled = None
        assert found == [0, 4, 8], f"before steps of 6, 5 and 1 tokens were found {found}"
        last = kernel.kv.lookup(reader).num_tokens
        assert last == 12, f"{last} tokens were found after all 12 were computed"

    @requires(KVCacheCapability.PREFIX_CACHING)
    def test_lookup_has_no_side_effects(self, make: PartMaker) -> None:
        """Requires the capability prefix_caching.
        Does: looks the same request up many times, and fills the cache with others afterwards.
        Must: find the same each time, change no account and no statistics.
        """
        kernel = HandKernel(make, num_blocks=12)
        kernel.compute(kernel.add(PROMPT, 1))
        kernel.kv.take_stats()
        probe = kernel.add([*PROMPT, 1])
        before = (kernel.kv.num_free_blocks, kernel.kv.blocks_in_use())
        found = [kernel.kv.lookup(probe).num_tokens for _ in range(5)]
        assert found == [12] * 5, f"the same lookup found {found} of 12 tokens"
        after = (kernel.kv.num_free_blocks, kernel.kv.blocks_in_use())
        assert before == after, f"lookups changed free and used blocks from {before} to {after}"
        stats = kernel.kv.take_stats()
        assert stats == PrefixCacheStats(), f"lookups were counted, which may not be used: {stats}"
        kernel.kv.check()

    @requires(KVCacheCapability.PREFIX_CACHING)
    def test_failed_requests_leave_nothing(self, make: PartMaker) -> None:
        """Requires the capability prefix_caching.
        Does: lets requests fail whose blocks may be wrong: alone, while another uses their blocks,
        and after they took over a beginning that another wrote.
        Must: let nobody find what they wrote, and keep what they only read.
        """
        kernel = HandKernel(make, num_blocks=64)
        kernel.compute(kernel.add(PROMPT, 1))
        bad = kernel.add([*PROMPT, *range(8)], 9)
        kernel.compute(bad)
        user = kernel.add([*bad.prompt_token_ids, 3], 9)
        kernel.compute(user)
        probe = kernel.add([*bad.prompt_token_ids, 4])
        assert kernel.kv.lookup(probe).num_tokens == 20, "20 tokens were committed"
        kernel.compute(bad, fail=[bad])
        for when in ("while another still uses it", "after the last user has ended"):
            found = kernel.kv.lookup(probe).num_tokens
            assert found == 12, (
                f"{found} tokens were found {when}; 12 were written by another, 8 by the one that "
                "failed"
            )
            if user.request_id in kernel.requests:
                kernel.abort(user)
        kernel.compute(again := kernel.add([*bad.prompt_token_ids, 5], 9))
        found = kernel.kv.lookup(probe).num_tokens
        assert found == 20, f"{found} tokens were found after {again.request_id} wrote 20 anew"

    @requires(KVCacheCapability.PREFIX_CACHING)
    def test_tenants_do_not_share(self, make: PartMaker) -> None:
        """Requires the capability prefix_caching.
        Does: runs one prompt with different cache salts and adapters.
        Must: find it for the same salt and adapter only: the keys are block_hashes, whole.
        """
        isolated: list[dict[str, Any]] = [
            {},
            {"cache_salt": "red"},
            {"cache_salt": "green"},
            {"adapter": AdapterRef(name="red", version="1")},
        ]
        kernel = HandKernel(make, num_blocks=64)
        for number, fields in enumerate(isolated):
            for other, asked in enumerate(isolated):
                found = kernel.kv.lookup(kernel.add([*PROMPT, 1], **asked)).num_tokens
                expected = 12 if other < number else 0
                assert found == expected, (
                    f"{found} tokens of a prompt were found with {asked}, not {expected}; it was "
                    f"computed with {isolated[:number]}"
                )
            kernel.compute(kernel.add(PROMPT, 1, **fields))

    @requires(KVCacheCapability.PREFIX_CACHING)
    def test_what_is_computed_whole_finds_nothing(self, make: PartMaker) -> None:
        """Requires the capability prefix_caching.
        Does: looks up a request that wants something of each prompt token, of a cached prompt.
        Must: find nothing for it.
        """
        kernel = HandKernel(make, num_blocks=64)
        kernel.compute(kernel.add(PROMPT, 1))
        request = kernel.add(PROMPT, 1, prompt_logprobs=1)
        found = kernel.kv.lookup(request)
        assert _is_empty(found), f"{found} was found, but computes_whole_prompt is true"
        kernel.compute(request)

    @requires(KVCacheCapability.PREFIX_CACHING)
    def test_a_reset_forgets_all_or_nothing(self, make: PartMaker) -> None:
        """Requires the capability prefix_caching.
        Does: resets the cache while a request uses blocks, and afterwards.
        Must: return False and change nothing first, then return True and find nothing any more.
        """
        kernel = HandKernel(make, num_blocks=16)
        kernel.compute(kernel.add(PROMPT, 1))
        request, probe = kernel.add(6, 4), kernel.add([*PROMPT, 1])
        kernel.compute(request)
        before = _facts(kernel, probe)
        refused = kernel.kv.reset_prefix_cache()
        assert refused is False, f"a reset while a request uses blocks gave {refused!r}"
        assert _facts(kernel, probe) == before, "a refused reset changed the cache"
        kernel.abort(request)
        done = kernel.kv.reset_prefix_cache()
        assert done is True, f"a reset while nothing runs gave {done!r}"
        found = kernel.kv.lookup(probe)
        assert _is_empty(found), f"{found} was found after a reset"
        kernel.kv.check()
        kernel.check_accounts()

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
        assert _is_empty(found), f"{found} was found with cache.enable_prefix_caching off"
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
        assert _is_empty(found), f"{found} was found, and prefix_caching is not declared"
        kernel.compute(request)
        hits = kernel.kv.take_stats().hits
        assert hits == 0, f"{hits} hits were counted, and prefix_caching is not declared"
        assert kernel.kv.reset_prefix_cache() is True, "a reset was refused, though nothing runs"

    # Windows

    @requires(KVCacheCapability.SLIDING_WINDOW)
    def test_blocks_that_left_a_window_are_freed(self, make: PartMaker) -> None:
        """Requires the capability sliding_window.
        Does: runs a request of 60 tokens with a window of 4, in a cache of 16 tokens.
        Must: hold only what the window reaches, so that it fits.
        """
        kernel = HandKernel(
            make, num_blocks=8, block_size=2, groups=(sliding(4),), max_num_batched_tokens=4
        )
        assert kernel.kv.can_ever_fit(60), (
            "60 tokens with a window of 4 do not fit into 16, it says"
        )
        request = kernel.add(30, 30)
        most = _run_to_end(kernel, request)
        needed = kernel.kv.blocks_for(60)
        assert most <= needed <= 8, f"it held {most} blocks; blocks_for(60) is {needed}, of 8"

    @requires(KVCacheCapability.SLIDING_WINDOW, KVCacheCapability.PREFIX_CACHING)
    def test_prefixes_are_found_through_windows(self, make: PartMaker) -> None:
        """Requires the capabilities sliding_window and prefix_caching.
        Does: looks up a cached prompt where layers have a window, alone and beside full attention.
        Must: find all of it, with the null block where the window does not reach, and no block of
        which another group's is needed.
        """
        for groups in ((sliding(5),), (FULL, sliding(5)), (sliding(3), FULL)):
            kernel = HandKernel(make, num_blocks=64, groups=groups)
            kernel.compute(kernel.add(PROMPT, 1))
            request = kernel.add([*PROMPT, 1], 1)
            found = kernel.kv.lookup(request)
            assert found.num_tokens == 12, f"{found.num_tokens} of 12 cached tokens were found"
            lengths = [len(blocks) for blocks in found.blocks]
            assert lengths == [3] * len(groups), f"blocks of each group: {lengths}, 3 are wanted"
            kernel.compute(request)

    @lacking(KVCacheCapability.SLIDING_WINDOW)
    def test_without_windows_all_tokens_are_kept(self, subject: Subject, seed: int) -> None:
        """Requires a manager that does not declare sliding_window.
        Does: runs a model with windows in a real engine, with it and with the default manager.
        Must: work, with the same tokens: the kernel gives it one group that keeps everything.
        """
        with_windows = _with_windows(subject)
        with with_windows.launch() as engine:
            own = run_prompts(engine, seed)
        with with_windows.launch(cache=_default_manager()) as engine:
            default = run_prompts(engine, seed)
        assert own == default, "other tokens than with the default manager"

    # Under a scheduler

    def test_everything_ends(self, make: PartMaker, shapes: list[Groups], seed: int) -> None:
        """Requires nothing.
        Does: random workloads under the configured scheduler, with few blocks.
        Must: let every request read what was written for it and end, and leak no block.
        """
        for number in seeds(seed, RUNS):
            groups = shapes[number % len(shapes)]
            sizes = random_sizes(number)
            sizes["num_blocks"] += 16 * (len(groups) - 1)
            kernel, load = kernel_around(make, **sizes, groups=groups), workload(number)
            play(kernel, load, limit=BOUND)
            free, total = kernel.kv.num_free_blocks, kernel.kv.num_total_blocks
            assert (free, kernel.kv.blocks_in_use()) == (total, 0), (
                f"{kernel.kv.blocks_in_use()} blocks in use by nobody, {free} free of {total} "
                f"(workload seed {number})"
            )

    def test_same_events_same_schedule(self, make: PartMaker, seed: int) -> None:
        """Requires nothing.
        Does: runs workloads twice, each with new parts.
        Must: lead to the same schedule both times.
        """
        for number in seeds(seed, RUNS // 4):
            load, sizes = workload(number), random_sizes(number)
            first, second = (play(kernel_around(make, **sizes), load) for _ in range(2))
            assert first == second, f"two schedules of one workload (seed {number})"

    def test_requests_that_ended_are_forgotten(self, make: PartMaker) -> None:
        """Requires nothing.
        Does: runs requests to their end, one after another and side by side.
        Must: keep no reference to them: an engine serves millions.
        """
        kernel = kernel_around(make, num_blocks=16)
        for number in range(8):
            kernel.add(3 + number, 4, request_id=f"forget-{number}")
        kernel.run()
        kernel.add(3, 1)
        kernel.run()
        gc.collect()
        kept = [
            each.request_id
            for each in gc.get_objects()
            if isinstance(each, Request) and each.request_id.startswith("forget-")
        ]
        assert not kept, f"requests that ended are still referenced: {sorted(kept)}"

    # Faults of others

    @requires(KVCacheCapability.PREFIX_CACHING)
    def test_errors_of_the_eviction_policy_come_out(self, make: PartMaker) -> None:
        """Requires the capability prefix_caching.
        Does: lets the eviction policy raise.
        Must: let the exception out; the kernel names its plugin and stops the engine.
        """
        for method in ("add", "remove", "pop"):
            eviction = ToldEviction(5)
            kernel = HandKernel(make, num_blocks=4, eviction=eviction)
            if method != "add":
                kernel.compute(kernel.add(PROMPT, 1))
            eviction.fault = method
            prompt = [*PROMPT, 1] if method == "remove" else 15
            with pytest.raises(EvictionFault):
                kernel.compute(kernel.add(prompt, 1))
                raise AssertionError(f"an exception of the eviction policy's {method} was lost")

    @requires(KVCacheCapability.PREFIX_CACHING)
    def test_a_wrong_eviction_is_noticed(self, make: PartMaker) -> None:
        """Requires the capability prefix_caching.
        Does: lets the eviction policy give up a block that a running request uses.
        Must: raise an error of this framework, at once or from check(), before anybody reads it.
        """
        eviction = ToldEviction(7)
        kernel = HandKernel(make, num_blocks=6, eviction=eviction)
        kernel.compute(kernel.add(PROMPT, 1))
        user, other = kernel.add(7, 9), kernel.add(12, 1)
        kernel.compute(user)
        used = kernel.tables(user)[0][0]
        eviction.instead = lambda: used
        with pytest.raises(FrameworkError):
            kernel.table.start(other, 0)
            kernel.kv.allocate(other, 12, CachedPrefix())
            kernel.kv.check()
            raise AssertionError(
                f"the eviction policy gave up block {used}, which is in use, and nobody noticed"
            )

    # Cost

    def test_costs_do_not_depend_on_the_size(self, make: PartMaker) -> None:
        """Requires nothing.
        Does: counts the lines that a request's lookup, allocation, commit and release execute, in
        a cache of 100 and of 10,000 blocks.
        Must: not grow with the cache, whose blocks are many.
        """
        costs = []
        for num_blocks in (100, 10_000):
            kernel = HandKernel(make, num_blocks=num_blocks)
            kernel.compute(kernel.add(PROMPT, 1))
            request = kernel.add([*PROMPT, *range(20)], 9)
            costs.append(lines_of(lambda k=kernel, r=request: _one_request(k, r)))  # type: ignore[misc]
        small, large = costs
        assert large <= 2 * small + 40, (
            f"a request costs {small} lines in a cache of 100 blocks, {large} in one of 10,000"
        )

    # In an engine

    def test_tokens_do_not_depend_on_it(self, subject: Subject, seed: int) -> None:
        """Requires nothing.
        Does: generates in a real engine with few blocks, again with what is cached, again after a
        reset and after a sleep, and with the default manager.
        Must: change what is computed anew, never what requests get.
        """
        with subject.launch(cache={"num_blocks": 12}) as engine:
            own = [run_prompts(engine, seed), run_prompts(engine, seed)]
            assert engine.reset_prefix_cache(), "a reset was refused, though nothing runs"
            own.append(run_prompts(engine, seed))
            engine.sleep(1)
            engine.wake_up()
            own.append(run_prompts(engine, seed))
        with subject.launch(cache=_default_manager()) as engine:
            default = run_prompts(engine, seed)
        assert own == [default] * 4, "other tokens than with the default manager"


def _with_windows(subject: Subject) -> Subject:
    """The same one, with a model of which every other layer has a window."""
    options = {"scripted": {"sliding_window": 4, "num_groups": 2}}
    return Subject(
        subject.plugin,
        subject.kind.name,
        subject.provider,
        merged(subject.given, {"plugins": {"options": options}}),
    )


def _default_manager() -> dict[str, Any]:
    return {"manager": EngineConfig().cache.manager}


def _facts(kernel: HandKernel, probe: Request) -> tuple[Any, ...]:
    """What must not change where nothing may change."""
    kv = kernel.kv
    found = kv.lookup(probe).num_tokens
    return (kv.num_free_blocks, kv.blocks_in_use(), kv.capacity.tolist(), found)


def _is_empty(found: CachedPrefix) -> bool:
    return found.num_tokens == 0 and not any(found.blocks)


def _run_to_end(kernel: HandKernel, *requests: Request) -> int:
    """Run them side by side; returns the most blocks that were in use after a step."""
    kv, most = kernel.kv, 0
    promised = sum(kv.blocks_for(request.max_total_tokens) for request in requests)
    while any(request.request_id in kernel.requests for request in requests):
        budget = kernel.budget
        orders = []
        for request in requests:
            if request.request_id in kernel.requests and budget:
                computed = int(kernel.table.num_computed_tokens[request.slot])
                lacking = request.num_tokens - (computed if request.slot >= 0 else 0)
                orders.append((request, min(budget, lacking)))
                budget -= orders[-1][1]
        refused = kernel.compute(*orders)
        assert not refused, (
            f"{refused} got no blocks, though blocks_for says that all need at most {promised}, "
            f"of {kv.num_total_blocks}"
        )
        most = max(most, kv.blocks_in_use())
        assert most <= promised, f"{most} blocks in use; blocks_for promised at most {promised}"
    return most


def _one_request(kernel: HandKernel, request: Request) -> None:
    """What a manager is asked for a request's life."""
    kv, table = kernel.kv, kernel.table
    cached = kv.lookup(request)
    kv.can_allocate(request, 32, cached)
    slot = table.start(request, cached.num_tokens)
    kv.allocate(request, 32, cached)
    kv.record_lookup(request, cached)
    table.num_computed_tokens[slot] = 32
    kv.commit(np.array([slot], dtype=np.int32))
    kv.allocate(request, 40)
    kv.free(slot)


def _use(kernel: HandKernel, rng: random.Random) -> None:
    """Random events, then the end of all that is left."""
    shared = [[start + position for position in range(12)] for start in (100, 200)]
    for _ in range(50):
        live = list(kernel.requests.values())
        event = rng.choice(("add", "step", "step", "step", "fail", "abort", "preempt", "reset"))
        running = [request for request in live if request.slot >= 0]
        if event == "add" and len(live) < 6:
            prompt = [*rng.choice(shared)[: rng.randint(0, 12)], *rng.choices(range(9), k=6)]
            if kernel.kv.can_ever_fit(len(prompt) + 8):
                kernel.add(prompt, rng.randint(1, 8))
        elif event in ("step", "fail"):
            _random_step(kernel, rng, failing=event == "fail")
        elif event == "abort" and live:
            kernel.abort(rng.choice(live))
        elif event == "preempt" and running:
            kernel.preempt(rng.choice(running))
        elif event == "reset":
            done, in_use = kernel.kv.reset_prefix_cache(), kernel.kv.blocks_in_use()
            assert done is (in_use == 0), f"a reset gave {done!r} with {in_use} blocks in use"
        kernel.check_accounts()
    for request in list(kernel.requests.values()):
        kernel.abort(request)
    kernel.kv.check()
    kernel.check_accounts()


def _random_step(kernel: HandKernel, rng: random.Random, *, failing: bool) -> None:
    """Some of the requests compute some tokens; of those that fail one of them."""
    running = [request for request in kernel.requests.values() if request.slot >= 0]
    waiting = [request for request in kernel.requests.values() if request.slot < 0]
    waiting = waiting[: kernel.table.num_free_slots]
    budget, orders = kernel.budget, []
    for request in [*running, *waiting]:
        if budget and rng.random() < 0.7:
            tokens = rng.randint(1, min(budget, 12))
            orders.append((request, tokens))
            budget -= tokens
    kernel.compute(*orders, fail=[orders[0][0]] if failing and orders else [])
