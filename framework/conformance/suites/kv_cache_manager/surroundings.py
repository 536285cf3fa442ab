"""Managers under a scheduler, beside faulty policies, and in an engine."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from framework.conformance.base import requires
from framework.conformance.subject import Subject
from framework.conformance.suites.kv_cache_manager.base import (
    PROMPT,
    RUNS,
    Groups,
    KvCacheManagerPart,
    default_manager,
)
from framework.conformance.worlds.cost import lines_of
from framework.conformance.worlds.engines import run_prompts
from framework.conformance.worlds.hand_kernel import HandKernel
from framework.conformance.worlds.makers import PartMaker, kernel_around
from framework.conformance.worlds.told_eviction import EvictionFault, ToldEviction
from framework.conformance.worlds.workload import play, random_sizes, seeds, workload
from framework.core.request import Request
from hookspecs.contracts.kv_cache import KVCacheCapability
from hookspecs.errors import FrameworkError
from hookspecs.types.kv import CachedPrefix

__all__ = ["Surroundings"]

BOUND = 4000
"""Steps in which a workload that needs a few hundred must be done."""


class Surroundings(KvCacheManagerPart):
    """Together with the other parts a manager ends every request and costs little."""

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
        with subject.launch(cache=default_manager()) as engine:
            default = run_prompts(engine, seed)
        assert own == [default] * 4, "other tokens than with the default manager"


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
