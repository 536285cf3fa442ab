"""Giving out, evicting, freeing and accounting of blocks."""

from __future__ import annotations

import numpy as np
import pytest

from builtin_plugins.kv_cache_paged.eviction import LruEviction
from builtin_plugins.kv_cache_paged.manager import PagedKVCacheManager
from builtin_plugins.kv_cache_paged.pool import BlockPool
from framework.core.request import Request
from hookspecs.config import EngineConfig
from hookspecs.contracts.kv_cache import EvictionContext, EvictionPolicy, KVCacheContext
from hookspecs.errors import ConfigError, ContractViolation, InternalError
from hookspecs.types.kv import CachedPrefix, KVCacheConfig
from tests.mini_kernel import FULL, MiniKernel, sliding


def fill(kernel: MiniKernel, prompt: int | list[int]) -> list[int]:
    """Leave the complete blocks of a prompt in the cache; returns the prompt."""
    request = kernel.add(prompt, max_tokens=1)
    kernel.run()
    return request.prompt_token_ids


def hit(kernel: MiniKernel, prompt: list[int]) -> int:
    """Tokens of a prompt that are cached."""
    request = kernel.add([*prompt, 1])
    found = kernel.kv.lookup(request).num_tokens
    kernel.abort(request)
    return found


def start(kernel: MiniKernel, request: Request, num_tokens: int) -> tuple[list[int], ...] | None:
    """Start a request by hand, with what the cache has of it."""
    cached = kernel.kv.lookup(request)
    kernel.table.start(request, cached.num_tokens)
    return kernel.kv.allocate(request, num_tokens, cached)


def test_unused_blocks_without_content_are_given_out_first() -> None:
    kernel = MiniKernel(num_blocks=8)
    first, second = fill(kernel, 12), fill(kernel, 12)
    fill(kernel, 8)
    assert hit(kernel, first) == 12 and hit(kernel, second) == 12
    assert kernel.kv.take_stats().evictions == 0


def test_the_longest_unused_goes_first_and_ends_before_beginnings() -> None:
    kernel = MiniKernel(num_blocks=8)
    first, second = fill(kernel, 12), fill(kernel, 12)
    fill(kernel, 12)
    assert (hit(kernel, first), hit(kernel, second)) == (8, 12)
    fill(kernel, 12)
    assert (hit(kernel, first), hit(kernel, second)) == (0, 8)
    assert kernel.kv.take_stats().evictions == 4


def test_use_makes_recent() -> None:
    kernel = MiniKernel(num_blocks=6)
    first, second = fill(kernel, 12), fill(kernel, 12)
    fill(kernel, first)
    fill(kernel, 4)
    assert hit(kernel, second) == 8
    assert hit(kernel, first) == 12


def test_hits_are_not_evicted_by_the_allocation_that_uses_them() -> None:
    kernel = MiniKernel(num_blocks=5)
    prompt = fill(kernel, 12)
    request = kernel.add([*prompt, *range(8)], max_tokens=1, fits=False)
    found = kernel.kv.lookup(request)
    tables = start(kernel, request, 20)
    assert tables is not None
    assert tuple(tables[0][:3]) == found.blocks[0]
    assert len(set(tables[0])) == 5
    kernel.kv.check()


def test_a_failed_allocation_changes_nothing() -> None:
    kernel = MiniKernel(num_blocks=4)
    prompt = fill(kernel, 12)
    request = kernel.add([*prompt, *range(8)], max_tokens=1, fits=False)
    assert not kernel.kv.can_allocate(request, 20, kernel.kv.lookup(request))
    assert start(kernel, request, 20) is None
    assert kernel.kv.num_free_blocks == 4
    assert kernel.kv.capacity[request.slot] == 0
    assert kernel.kv.lookup(request).num_tokens == 12
    kernel.kv.check()


def test_blocks_are_appended_only_when_the_tables_are_full() -> None:
    kernel = MiniKernel(num_blocks=4)
    request = kernel.add(5)
    assert start(kernel, request, 5) == ([1, 2],)
    assert kernel.kv.capacity[request.slot] == 8
    assert kernel.kv.allocate(request, 8) == ([],)
    assert kernel.kv.allocate(request, 9) == ([3],)
    assert kernel.kv.allocate(request, 17) is None
    assert kernel.kv.blocks_in_use() == 3
    kernel.kv.free(request.slot)
    kernel.kv.free(request.slot)
    assert kernel.kv.blocks_in_use() == 0


def test_blocks_are_shared_and_freed_with_the_last_user() -> None:
    kernel = MiniKernel(num_blocks=8)
    prompt = fill(kernel, 8)
    one, two = kernel.add([*prompt, 1]), kernel.add([*prompt, 2])
    kernel.step()
    assert kernel.kv.blocks_in_use() == 4
    kernel.abort(one)
    assert kernel.kv.blocks_in_use() == 3
    kernel.abort(two)
    assert kernel.kv.blocks_in_use() == 0
    assert hit(kernel, prompt) == 8


def test_a_poisoned_failure_forgets_what_the_request_wrote_not_what_it_read() -> None:
    kernel = MiniKernel()
    prompt = fill(kernel, 8)
    bad = kernel.add([*prompt, *range(8)], max_tokens=9)
    kernel.step()
    assert hit(kernel, bad.prompt_token_ids) == 16
    kernel.step(fail=[bad])
    assert not kernel.requests
    assert hit(kernel, bad.prompt_token_ids) == 8, "the shared prefix was written by another"
    lone = kernel.add([*range(50, 58)], max_tokens=9)
    kernel.step()
    kernel.step(fail=[lone])
    assert hit(kernel, lone.prompt_token_ids) == 0


def test_a_poisoned_block_is_not_found_while_others_still_use_it() -> None:
    kernel = MiniKernel()
    bad = kernel.add(8, max_tokens=9)
    kernel.step()
    reader = kernel.add([*bad.prompt_token_ids, 5], max_tokens=9)
    kernel.step()
    kernel.step(fail=[bad])
    assert reader.request_id in kernel.requests
    assert hit(kernel, bad.prompt_token_ids) == 0
    kernel.run()
    assert hit(kernel, bad.prompt_token_ids) == 0, "nor when the last user has released it"
    fill(kernel, bad.prompt_token_ids)
    assert hit(kernel, bad.prompt_token_ids) == 8, "another may write the content anew"


def test_a_poisoned_failure_forgets_what_a_window_has_passed() -> None:
    kernel = MiniKernel(block_size=2, groups=(sliding(3),), max_num_batched_tokens=4)
    prompt = fill(kernel, 4)
    bad = kernel.add([*prompt, *range(12)], max_tokens=9)
    for _ in range(4):
        kernel.step()
    assert hit(kernel, [*bad.prompt_token_ids[:12]]) == 12
    kernel.step(fail=[bad])
    assert not kernel.requests
    assert hit(kernel, bad.prompt_token_ids) == 4
    kernel.kv.check()


def test_equal_blocks_take_the_place_of_one_when_unused() -> None:
    kernel = MiniKernel(num_blocks=8)
    other = fill(kernel, 8)
    prompt = list(range(12))
    # Prompt logprobs are computed, not looked up: every time the same content is written anew.
    for _ in range(5):
        kernel.add(prompt, max_tokens=1, prompt_logprobs=0)
        kernel.run()
    assert hit(kernel, prompt) == 12 and hit(kernel, other) == 8
    assert kernel.kv.take_stats().evictions == 0


def test_reset_only_while_nothing_is_used() -> None:
    kernel = MiniKernel()
    prompt = fill(kernel, 8)
    request = kernel.add(4)
    kernel.step()
    assert kernel.kv.reset_prefix_cache() is False
    assert hit(kernel, prompt) == 8
    kernel.abort(request)
    assert kernel.kv.reset_prefix_cache() is True
    assert hit(kernel, prompt) == 0
    assert kernel.kv.num_free_blocks == kernel.kv.num_total_blocks
    kernel.kv.check()
    assert kernel.kv.take_stats().resets == 1


def test_statistics_count_resumed_requests_apart() -> None:
    kernel = MiniKernel()
    prompt = fill(kernel, 8)
    kernel.kv.take_stats()
    request = kernel.add([*prompt, 1, 2], max_tokens=3)
    kernel.step()
    kernel.scheduler.preempt_all()
    kernel.step()
    stats = kernel.kv.take_stats()
    assert (stats.requests, stats.queries, stats.hits) == (1, 10, 8)
    assert stats.preempted_requests == 1
    assert (stats.preempted_queries, stats.preempted_hits) == (11, 8)
    assert kernel.kv.take_stats() == type(stats)()
    assert request.num_preemptions == 1


@pytest.mark.parametrize("num_blocks", [5, 9])
def test_a_window_returns_blocks_while_its_request_runs(num_blocks: int) -> None:
    kernel = MiniKernel(
        num_blocks=num_blocks, block_size=2, groups=(sliding(4),), max_num_batched_tokens=4
    )
    request = kernel.add(30, max_tokens=30)
    assert kernel.kv.blocks_for(60) == 5
    most = 0
    while kernel.requests:
        kernel.step()
        most = max(most, kernel.kv.blocks_in_use())
    assert most <= 5
    assert request.num_output_tokens == 30


def test_a_window_keeps_long_requests_possible_but_full_attention_does_not() -> None:
    small = {"num_blocks": 6, "block_size": 2, "max_num_batched_tokens": 4}
    assert MiniKernel(groups=(sliding(4),), **small).kv.can_ever_fit(10_000)  # type: ignore[arg-type]
    full = MiniKernel(groups=(FULL,), **small).kv  # type: ignore[arg-type]
    assert full.can_ever_fit(12) and not full.can_ever_fit(13)
    both = MiniKernel(groups=(FULL, sliding(4)), **small).kv  # type: ignore[arg-type]
    assert both.can_ever_fit(6) and not both.can_ever_fit(7)


def test_what_left_a_window_is_still_found() -> None:
    kernel = MiniKernel(num_blocks=12, block_size=2, groups=(sliding(3),), max_num_batched_tokens=4)
    prompt = fill(kernel, 16)
    # The early blocks left the window first, so they are evicted first; hits do not need them.
    fill(kernel, 12)
    found = kernel.kv.lookup(kernel.add([*prompt, 1]))
    assert found.num_tokens == 16
    assert found.blocks[0][:7] == (0,) * 7


def test_groups_without_room_for_all_get_nothing() -> None:
    kernel = MiniKernel(num_blocks=5, groups=(FULL, sliding(64)))
    request = kernel.add(9, fits=False)
    assert start(kernel, request, 9) is None
    assert kernel.kv.num_free_blocks == 5
    tables = kernel.kv.allocate(request, 8, CachedPrefix())
    assert tables is not None and sorted(tables[0] + tables[1]) == [1, 2, 3, 4]


def test_a_block_that_others_share_does_not_become_free_when_it_leaves_a_window() -> None:
    kernel = MiniKernel(num_blocks=3, block_size=2, groups=(sliding(3),), max_num_batched_tokens=2)
    prompt = fill(kernel, 8)
    one, two = kernel.add([*prompt, 1], max_tokens=9), kernel.add([*prompt, 2], max_tokens=9)
    for request in (one, two):
        tables = start(kernel, request, 10)
        assert tables is not None and tables[0][:3] == [0, 0, 0]
    assert kernel.kv.num_free_blocks == 0
    kernel.table.num_computed_tokens[[one.slot, two.slot]] = 10
    assert kernel.kv.allocate(one, 11) is None
    kernel.kv.free(two.slot)
    assert kernel.kv.allocate(one, 11) is not None
    kernel.kv.check()


def test_commit_of_no_slots_does_nothing() -> None:
    kernel = MiniKernel()
    kernel.kv.commit(np.zeros(0, dtype=np.int32))
    kernel.kv.check()


def test_order_of_blocks_is_deterministic() -> None:
    def tables() -> list[tuple[list[int], ...]]:
        kernel = MiniKernel(num_blocks=10)
        made: list[tuple[list[int], ...]] = []
        kernel.on_scheduled = lambda output: made.extend(n.block_ids for n in output.new_requests)
        for length in (9, 3, 12, 5, 12, 7):
            kernel.add(length)
        kernel.run()
        return made

    assert tables() == tables()


@pytest.mark.parametrize("window", [0, -1])
def test_a_window_below_one_is_refused(window: int) -> None:
    with pytest.raises(ConfigError, match="at least 1"):
        MiniKernel(groups=(sliding(window),))


def test_no_groups_are_refused() -> None:
    with pytest.raises(ConfigError, match="no groups"):
        MiniKernel(groups=())


class Forgetful(LruEviction):
    """Loses what it is given."""

    def add(self, block: int) -> None:
        pass


class Unruly(LruEviction):
    """Gives up whatever it likes."""

    def pop(self) -> int:
        super().pop()
        return 2


def with_eviction(eviction: type[EvictionPolicy]) -> MiniKernel:
    kernel = MiniKernel(num_blocks=4)
    context = EvictionContext(config=EngineConfig(), num_blocks=5, name="mine", plugin="my-plugin")
    old = kernel.kv.context
    kernel.kv = PagedKVCacheManager(
        KVCacheContext(
            config=old.config,
            kv_config=KVCacheConfig(num_blocks=5, block_size=4, groups=(FULL,), bytes_per_block=1),
            requests=kernel.table,
            eviction=eviction(context),
            max_num_seqs=old.max_num_seqs,
            max_model_len=old.max_model_len,
            max_num_batched_tokens=old.max_num_batched_tokens,
        )
    )
    return kernel


def cache_one_block(kernel: MiniKernel) -> Request:
    request = kernel.add(5)
    start(kernel, request, 5)
    kernel.table.num_computed_tokens[request.slot] = 5
    kernel.kv.commit(np.array([request.slot], dtype=np.int32))
    return request


def test_check_names_what_does_not_add_up() -> None:
    kernel = with_eviction(Forgetful)
    request = cache_one_block(kernel)
    kernel.kv.check()
    kernel.kv.free(request.slot)
    with pytest.raises(InternalError, match="1 unused blocks are cached, but the eviction policy"):
        kernel.kv.check()


def test_an_eviction_policy_that_gives_up_used_blocks_is_named() -> None:
    kernel = with_eviction(Unruly)
    request = cache_one_block(kernel)
    kernel.kv.free(request.slot)
    kernel.table.preempt(request)
    other = kernel.add(16, max_tokens=1, fits=False)
    with pytest.raises(ContractViolation, match="'mine' gave up block 2") as caught:
        start(kernel, other, 16)
    assert caught.value.plugin == "my-plugin"


def make_pool() -> BlockPool:
    return BlockPool(4, LruEviction(EvictionContext(config=EngineConfig(), num_blocks=4)))


def test_pool_finds_wrong_reference_counts() -> None:
    pool = make_pool()
    block = pool.take()
    pool.verify({block: 1})
    with pytest.raises(InternalError, match="block 1 has 1 references, but 2"):
        pool.verify({block: 2})
    pool.release(block)
    with pytest.raises(InternalError, match="released more often"):
        pool.release(block)


def test_pool_never_changes_the_key_of_a_block() -> None:
    pool = make_pool()
    block = pool.take()
    pool.publish(block, b"a")
    with pytest.raises(InternalError, match="cached already"):
        pool.publish(block, b"b")


@pytest.mark.parametrize("order", [(1, 2, 3), (3, 2, 1), (2, 1, 3), (2, 3, 1)])
def test_pool_keeps_one_of_equal_blocks(order: tuple[int, ...]) -> None:
    pool = make_pool()
    for block in (1, 2, 3):
        assert pool.take() == block
        pool.publish(block, b"a")
    left = {1, 2, 3}
    for block in order:
        pool.release(block)
        left.remove(block)
        assert pool.find(b"a") in (left or {block})
        pool.verify(dict.fromkeys(left, 1))
    assert pool.find(b"a") == order[-1]
    assert pool.num_free == 3
    assert [pool.take() for _ in range(3)] == [order[1], order[0], order[2]]
    assert pool.num_evictions == 1 and pool.find(b"a") is None


def test_pool_forgets_all_equal_blocks() -> None:
    pool = make_pool()
    for block in (1, 2, 3):
        pool.take()
        pool.publish(block, b"a" if block < 3 else b"b")
    pool.release(1)
    pool.release(3)
    pool.forget_key(b"a")
    pool.forget_key(b"b")
    pool.forget_key(b"c")
    assert pool.find(b"a") is pool.find(b"b") is None
    pool.verify({2: 1})
    pool.release(2)
    pool.verify({})


def test_pool_gives_out_every_block_but_null_then_none() -> None:
    pool = make_pool()
    assert [pool.take() for _ in range(3)] == [1, 2, 3]
    with pytest.raises(IndexError):
        pool.take()


def test_lru_contract() -> None:
    lru = LruEviction(EvictionContext(config=EngineConfig(), num_blocks=4))
    for block in (3, 1, 2):
        lru.add(block)
    lru.remove(1)
    lru.add(1)
    assert len(lru) == 3
    assert [lru.pop(), lru.pop(), lru.pop()] == [3, 2, 1]
    with pytest.raises(IndexError):
        lru.pop()
    with pytest.raises(KeyError):
        lru.remove(3)
