"""The kit asks for nothing beyond the contract: parts that are right, and unlike the built-in
ones, pass all of it."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from builtin_plugins.scheduler_continuous.scheduler import ContinuousScheduler
from framework.conformance.report import Outcome
from framework.conformance.run import conform
from hookspecs.contracts.kv_cache import (
    EvictionContext,
    EvictionPolicy,
    KVCacheContext,
    KVCacheManager,
)
from hookspecs.contracts.request_view import RequestView
from hookspecs.contracts.scheduler import SchedulerCapability
from hookspecs.errors import InternalError
from hookspecs.types.columns import Int32Column
from hookspecs.types.kv import CachedPrefix
from hookspecs.types.stats import PrefixCacheStats
from tests.conformance.mutants.mutant import providing


class PlainCache(KVCacheManager):
    """No prefixes, no windows, blocks from a set, the lowest first."""

    def __init__(self, context: KVCacheContext) -> None:
        super().__init__(context)
        self._free = set(range(1, context.kv_config.num_blocks))
        self._held: dict[int, list[int]] = {}
        self._capacity = np.zeros(context.max_num_seqs, np.int32)
        self._resets = 0

    @property
    def capacity(self) -> Int32Column:
        return self._capacity

    @property
    def num_free_blocks(self) -> int:
        return len(self._free)

    @property
    def num_total_blocks(self) -> int:
        return self.context.kv_config.num_blocks - 1

    def can_ever_fit(self, num_tokens: int) -> bool:
        return self.blocks_for(num_tokens) <= self.num_total_blocks

    def blocks_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self.context.kv_config.block_size)

    def lookup(self, request: RequestView) -> CachedPrefix:
        return CachedPrefix(0, ((),))

    def can_allocate(
        self, request: RequestView, num_tokens: int, cached: CachedPrefix | None = None
    ) -> bool:
        held = len(self._held.get(request.slot, ()))
        return self.blocks_for(num_tokens) - held <= len(self._free)

    def allocate(
        self, request: RequestView, num_tokens: int, cached: CachedPrefix | None = None
    ) -> tuple[list[int], ...] | None:
        held = self._held.get(request.slot, [])
        missing = self.blocks_for(num_tokens) - len(held)
        if missing > len(self._free):
            return None
        new = [self._take() for _ in range(missing)]
        self._held[request.slot] = held + new
        self._capacity[request.slot] = len(held + new) * self.context.kv_config.block_size
        return (new,)

    def _take(self) -> int:
        block = next(iter(self._free))
        self._free.remove(block)
        return block

    def commit(self, slots: Int32Column) -> None:
        pass

    def free(self, slot: int, *, keep: bool = True) -> None:
        self._free.update(self._held.pop(slot, ()))
        self._capacity[slot] = 0

    def reset_prefix_cache(self) -> bool:
        self._resets += not self._held
        return not self._held

    def take_stats(self) -> PrefixCacheStats:
        stats, self._resets = PrefixCacheStats(resets=self._resets), 0
        return stats

    def record_lookup(self, request: RequestView, cached: CachedPrefix) -> None:
        pass

    def check(self) -> None:
        if len(self._free) + self.blocks_in_use() != self.num_total_blocks:
            raise InternalError(f"{len(self._free)} free, {self.blocks_in_use()} used blocks")

    def blocks_in_use(self) -> int:
        return sum(map(len, self._held.values()))


class RandomEviction(EvictionPolicy):
    """Random replacement: a list, and where in it each block is."""

    def __init__(self, context: EvictionContext) -> None:
        super().__init__(context)
        self._random = random.Random()
        self._blocks: list[int] = []
        self._places: dict[int, int] = {}

    def add(self, block: int) -> None:
        self._places[block] = len(self._blocks)
        self._blocks.append(block)

    def remove(self, block: int) -> None:
        place, last = self._places.pop(block), self._blocks.pop()
        if last != block:
            self._blocks[place] = last
            self._places[last] = place

    def pop(self) -> int:
        if not self._blocks:
            raise IndexError("nothing to give up")
        block = self._random.choice(self._blocks)
        self.remove(block)
        return block

    def __len__(self) -> int:
        return len(self._blocks)


class DeclaresAll(ContinuousScheduler):
    """Capabilities that this version of the kernel does not use do no harm."""

    capabilities = frozenset(SchedulerCapability)


@pytest.mark.parametrize(
    ("kind", "part"),
    [
        ("kv_cache_manager", PlainCache),
        ("eviction_policy", RandomEviction),
        ("scheduler", DeclaresAll),
    ],
)
def test_another_right_part_passes(kind: str, part: type[Any]) -> None:
    report = conform(providing(kind, part), quiet=True)
    tests = [test for test in report.tests if test.suite.startswith(kind)]
    failed = {test.name: test.reason for test in tests if test.outcome is Outcome.FAILED}
    assert tests and not failed, failed
