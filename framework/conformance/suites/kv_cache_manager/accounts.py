"""Which blocks are free, given out and promised."""

from __future__ import annotations

import random

import numpy as np

from framework.conformance.suites.kv_cache_manager.base import (
    PROMPT,
    RUNS,
    Groups,
    KvCacheManagerPart,
    facts,
    is_empty,
    run_to_end,
)
from framework.conformance.worlds.hand_kernel import HandKernel
from framework.conformance.worlds.makers import PartMaker
from framework.conformance.worlds.workload import seeds
from hookspecs.types.stats import PrefixCacheStats

__all__ = ["Accounts"]


class Accounts(KvCacheManagerPart):
    """Every block is accounted for."""

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
            assert is_empty(kv.lookup(kernel.add(6))), "a new cache found a prefix"
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
        before = facts(kernel, probe)
        assert kernel.compute(large) == [large.request_id], "20 tokens in 4 free blocks of 4"
        assert facts(kernel, probe) == before, "a refused start changed the cache"
        slot = small.slot
        assert kernel.kv.allocate(small, 100) is None, "100 tokens in a cache of 24"
        assert small.slot == slot and facts(kernel, probe) == before, "a refusal changed the cache"
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
            before = facts(kernel, request)
            can = [kernel.kv.can_allocate(request, num_tokens, cached) for _ in range(2)]
            assert facts(kernel, request) == before, "can_allocate changed the cache"
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
            run_to_end(kernel, alone)
            together = [kernel.add(9, 7), kernel.add(14, 3)]
            room = kv.num_total_blocks - sum(kv.blocks_for(r.max_total_tokens) for r in together)
            while room >= kv.blocks_for(12):
                together.append(kernel.add(5, 7))
                room -= kv.blocks_for(12)
            run_to_end(kernel, *together)

    def test_it_refuses_what_can_not_fit(self, make: PartMaker) -> None:
        """Requires nothing.
        Does: asks for requests of one token more than all blocks hold together.
        Must: say that they never fit, with full attention.
        """
        kernel = HandKernel(make, num_blocks=9)
        assert kernel.kv.can_ever_fit(4), "4 tokens do not fit into 9 blocks of 4"
        assert not kernel.kv.can_ever_fit(37), "37 tokens fit into 9 blocks of 4, it says"


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
