"""Suite of eviction policies: alone against a model, and inside of a KV cache."""

from __future__ import annotations

import random
from typing import Any

import pytest

from framework.conformance.base import Conformance
from framework.conformance.subject import Subject
from framework.conformance.worlds.cost import lines_of
from framework.conformance.worlds.counted import CountedInt
from framework.conformance.worlds.engines import run_prompts
from framework.conformance.worlds.makers import PartMaker, kernel_around
from framework.conformance.worlds.mini_kernel import FULL, sliding
from framework.conformance.worlds.workload import play, random_sizes, seeds, workload
from hookspecs.config import EngineConfig
from hookspecs.contracts.kv_cache import EvictionPolicy

__all__ = ["EvictionPolicyConformance"]

BLOCKS = 20
"""Of a policy that is driven by hand, with the null block."""
RUNS = 30
"""Random runs of a test."""
BOUND = 4000
"""Steps in which a workload that needs a few hundred must be done."""


class EvictionPolicyConformance(Conformance):
    """Eviction policies choose among the blocks that they were given, and lose none."""

    kind = "eviction_policy"

    @pytest.fixture
    def make(self, subject: Subject) -> PartMaker:
        """Makes the policy, and the built-in parts around it."""
        return PartMaker(subject)

    # Alone

    def test_it_gives_up_what_it_was_given(self, make: PartMaker) -> None:
        """Requires nothing.
        Does: adds all blocks that there are but the null block, and takes all out by pop.
        Must: give each of them exactly once, as an int.
        """
        policy = _new(make)
        blocks = list(range(1, BLOCKS))
        for block in reversed(blocks):
            policy.add(block)
        popped = [policy.pop() for _ in blocks]
        assert sorted(popped) == blocks, f"added were {blocks}; pop gave {popped}"
        wrong = [block for block in popped if not isinstance(block, int)]
        assert not wrong, f"pop gave {wrong}, which are no ints"

    def test_len_counts_what_could_be_given_up(self, make: PartMaker) -> None:
        """Requires nothing.
        Does: adds, removes and pops, asking for the length in between.
        Must: count the blocks that it holds.
        """
        policy = _new(make)
        lengths = [len(policy)]
        for block in (3, 1, 2):
            policy.add(block)
            lengths.append(len(policy))
        policy.remove(1)
        lengths.append(len(policy))
        policy.pop()
        lengths.append(len(policy))
        assert lengths == [0, 1, 2, 3, 2, 1], f"the length was {lengths}, not [0, 1, 2, 3, 2, 1]"

    def test_removed_blocks_are_not_given_up(self, make: PartMaker) -> None:
        """Requires nothing.
        Does: removes every other block, and pops the rest.
        Must: give up only those that were left, since the others are used again.
        """
        policy = _new(make)
        for block in range(1, BLOCKS):
            policy.add(block)
        for block in range(1, BLOCKS, 2):
            policy.remove(block)
        left = list(range(2, BLOCKS, 2))
        popped = sorted(policy.pop() for _ in left)
        assert popped == left, f"pop gave {popped}; held were {left}, the others in use"

    def test_removing_what_is_not_there_is_a_key_error(self, make: PartMaker) -> None:
        """Requires nothing.
        Does: removes blocks that were never added, were removed before, or were popped.
        Must: raise KeyError each time, and change nothing.
        """
        policy = _new(make)
        policy.add(4)
        policy.remove(4)
        policy.add(6)
        gone = policy.pop()
        policy.add(5)
        for block in (7, 4, gone):
            with pytest.raises(KeyError):
                policy.remove(block)
                raise AssertionError(f"remove({block}) of a block that it does not hold returned")
            assert len(policy) == 1, f"a refused remove left {len(policy)} blocks of 1"
        policy.remove(5)

    def test_popping_nothing_is_an_index_error(self, make: PartMaker) -> None:
        """Requires nothing.
        Does: pops when nothing was added, and when all has been removed or popped.
        Must: raise IndexError each time, and go on working.
        """
        policy = _new(make)
        for _ in range(3):
            with pytest.raises(IndexError):
                popped = policy.pop()
                raise AssertionError(f"an empty policy gave up {popped!r}")
            policy.add(2)
            policy.add(3)
            policy.remove(2)
            assert policy.pop() == 3

    def test_random_use(self, make: PartMaker, seed: int) -> None:
        """Requires nothing.
        Does: adds, removes and pops blocks at random, as caches of many sizes do, and compares
        with a set.
        Must: hold exactly what was added and neither removed nor popped since.
        """
        for number in seeds(seed, RUNS):
            rng = random.Random(number)
            count = rng.choice((2, 3, 8, 40))
            policy, held = _new(make, count), set[int]()
            for step in range(150):
                where = f"step {step} of the run of seed {number}"
                free = [block for block in range(1, count) if block not in held]
                action = rng.choice(("add", "add", "remove", "pop"))
                if action == "add" and free:
                    held.add(block := rng.choice(free))
                    policy.add(block)
                elif action == "remove" and held:
                    held.remove(block := rng.choice(sorted(held)))
                    policy.remove(block)
                elif action == "pop" and held:
                    block = policy.pop()
                    assert block in held, f"pop gave {block}; held are {sorted(held)} ({where})"
                    held.remove(block)
                assert len(policy) == len(held), f"{len(policy)} blocks of {len(held)} ({where})"
            left = sorted(policy.pop() for _ in range(len(policy)))
            assert left == sorted(held), f"at last it held {left}, not {sorted(held)} ({number})"

    def test_two_share_nothing(self, make: PartMaker) -> None:
        """Requires nothing.
        Does: uses two objects of it in turn, as two engines in a process do.
        Must: keep them apart.
        """
        one, two = _new(make), _new(make)
        one.add(3)
        two.add(5)
        lengths, popped = (len(one), len(two)), (one.pop(), two.pop())
        assert lengths == (1, 1) and popped == (3, 5), (
            f"two policies with a block each hold {lengths} blocks, and gave up {popped}"
        )

    def test_calls_cost_the_same_in_any_crowd(self, make: PartMaker) -> None:
        """Requires nothing.
        Does: counts the lines that calls execute, and how often they compare blocks, with 100
        and with 10,000 blocks held.
        Must: not grow with their number (a logarithm is forgiven): there is a call for each block.
        """
        costs = {count: _cost(make, count) for count in (100, 10_000)}
        few, many = costs.values()
        assert many <= 4 * few + 40, (
            f"50 of each call cost {few} lines and comparisons with 100 blocks held, {many} with "
            "10,000"
        )

    # In a cache

    def test_everything_ends(self, make: PartMaker, seed: int) -> None:
        """Requires nothing.
        Does: random workloads in a cache that is full of old prefixes, with full attention and
        with sliding windows.
        Must: let the accounts of the cache add up at every step, and every request read what was
        written for it.
        """
        for number in seeds(seed, RUNS // 2):
            sizes = {**random_sizes(number), "num_blocks": 26 + number % 7}
            groups = ((FULL,), (FULL, sliding(4)))[number % 2]
            kernel, load = kernel_around(make, **sizes, groups=groups), workload(number)
            play(kernel, load, limit=BOUND)
            free, total = kernel.kv.num_free_blocks, kernel.kv.num_total_blocks
            assert free == total, f"{free} blocks of {total} can be given out (seed {number})"

    def test_a_reset_empties_it(self, make: PartMaker) -> None:
        """Requires nothing.
        Does: fills a cache with prefixes, resets it, and fills it again.
        Must: hold nothing of the old ones.
        """
        kernel = kernel_around(make, num_blocks=12)
        for _ in range(2):
            for length in (8, 12, 9):
                kernel.add(length, 1)
            kernel.run()
            assert kernel.kv.reset_prefix_cache(), "a reset was refused, though nothing runs"
            kernel.kv.check()
            free = kernel.kv.num_free_blocks
            assert free == 12, f"{free} blocks of 12 can be given out after a reset"

    def test_tokens_do_not_depend_on_it(self, subject: Subject, seed: int) -> None:
        """Requires nothing.
        Does: generates in a real engine with a small cache, with the policy and without prefixes.
        Must: change what is computed anew, never what requests get.
        """
        small: dict[str, Any] = {"num_blocks": 14}
        with subject.launch(cache=small) as engine:
            with_policy = [run_prompts(engine, seed) for _ in range(2)]
        with subject.launch(cache={**small, "enable_prefix_caching": False}) as engine:
            without = run_prompts(engine, seed)
        assert with_policy == [without, without], "the policy changed the tokens of a request"


def _new(make: PartMaker, num_blocks: int = BLOCKS) -> EvictionPolicy:
    policy: EvictionPolicy = make("eviction_policy", EngineConfig(), num_blocks=num_blocks)
    return policy


def _cost(make: PartMaker, count: int) -> int:
    """Lines and comparisons of 50 rounds of remove, add, len, pop and add, `count` blocks held."""
    policy = _new(make, count + 1)
    blocks = [CountedInt(block) for block in range(1, count + 1)]
    for block in blocks:
        policy.add(block)

    def rounds() -> None:
        for index in range(50):
            block = blocks[(index * count) // 50]
            policy.remove(block)
            policy.add(block)
            len(policy)
            policy.add(policy.pop())

    before = CountedInt.comparisons
    return lines_of(rounds) + CountedInt.comparisons - before
