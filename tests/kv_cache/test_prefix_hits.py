"""Which prefix a lookup finds, in one group and in several."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builtin_plugins.kv_cache_paged.eviction import LruEviction
from builtin_plugins.kv_cache_paged.groups import group_shapes
from builtin_plugins.kv_cache_paged.pool import BlockPool
from builtin_plugins.kv_cache_paged.prefix import longest_prefix
from framework.core.request import Request
from hookspecs.config import EngineConfig
from hookspecs.contracts.kv_cache import EvictionContext
from hookspecs.types.kv import CachedPrefix, KVCacheConfig, KVCacheGroup
from tests.mini_kernel import FULL, MiniKernel, sliding

PROMPT = list(range(100, 112))


def cached_kernel(**settings: object) -> MiniKernel:
    """A cache of blocks of 4 that holds the 12 tokens of PROMPT."""
    kernel = MiniKernel(**settings)  # type: ignore[arg-type]
    kernel.add(PROMPT, max_tokens=1)
    kernel.run()
    return kernel


@pytest.mark.parametrize(
    ("num_tokens", "hit"),
    [(3, 0), (4, 0), (5, 4), (7, 4), (8, 4), (9, 8), (11, 8), (12, 8)],
)
def test_a_hit_leaves_at_least_one_token(num_tokens: int, hit: int) -> None:
    kernel = cached_kernel()
    request = kernel.add(PROMPT[:num_tokens])
    assert kernel.kv.lookup(request).num_tokens == hit


def test_a_longer_prompt_uses_all_cached_blocks() -> None:
    kernel = cached_kernel()
    request = kernel.add([*PROMPT, 1, 2, 3])
    found = kernel.kv.lookup(request)
    assert found.num_tokens == 12
    assert len(found.blocks[0]) == 3 and 0 not in found.blocks[0]
    assert kernel.schedule_of_next_step() == {request.request_id: 3}


def test_content_differs_after_the_first_block() -> None:
    kernel = cached_kernel()
    assert kernel.kv.lookup(kernel.add([*PROMPT[:6], 1, 2, 3, 4])).num_tokens == 4
    assert kernel.kv.lookup(kernel.add([1, *PROMPT[1:]])) == CachedPrefix()


def test_salt_isolates() -> None:
    kernel = cached_kernel()
    assert kernel.kv.lookup(kernel.add(PROMPT, cache_salt="other")) == CachedPrefix()


def test_prompt_logprobs_are_computed_and_not_looked_up() -> None:
    kernel = cached_kernel()
    request = kernel.add(PROMPT, prompt_logprobs=1)
    assert kernel.kv.lookup(request) == CachedPrefix()
    assert kernel.schedule_of_next_step() == {request.request_id: 12}


def test_without_prefix_caching_nothing_is_hashed(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(request: Request) -> list[bytes]:
        raise AssertionError("hashes were asked for")

    monkeypatch.setattr(Request, "block_hashes", property(forbidden))
    kernel = cached_kernel(enable_prefix_caching=False)
    request = kernel.add(PROMPT)
    assert kernel.kv.lookup(request) == CachedPrefix()
    kernel.run()
    assert kernel.kv.take_stats().requests == 0


def test_a_partial_block_is_not_cached() -> None:
    kernel = MiniKernel()
    kernel.add([*PROMPT[:7]], max_tokens=1)
    kernel.run()
    assert kernel.kv.lookup(kernel.add(PROMPT)).num_tokens == 4


def test_output_tokens_are_cached_too() -> None:
    kernel = MiniKernel()
    first = kernel.add(PROMPT[:6], max_tokens=7)
    kernel.run()
    # 13 tokens, of which the last was never computed.
    assert kernel.kv.lookup(kernel.add([*first.token_ids, 1])).num_tokens == 12


def test_the_same_content_may_be_cached_twice() -> None:
    kernel = MiniKernel()
    kernel.add(PROMPT, max_tokens=1)
    kernel.add(PROMPT, max_tokens=1)
    kernel.run()
    assert kernel.kv.num_free_blocks == kernel.kv.num_total_blocks
    assert kernel.kv.lookup(kernel.add([*PROMPT, 1])).num_tokens == 12


def test_a_window_needs_only_the_blocks_that_it_reaches() -> None:
    kernel = cached_kernel(groups=(sliding(5),))
    found = kernel.kv.lookup(kernel.add([*PROMPT, 1]))
    assert found.num_tokens == 12
    assert found.blocks[0][:2] == (0, 0) and found.blocks[0][2] != 0


def test_a_window_of_one_token_needs_no_block() -> None:
    kernel = cached_kernel(groups=(FULL, sliding(1)))
    found = kernel.kv.lookup(kernel.add([*PROMPT, 1]))
    assert found.blocks[1] == (0, 0, 0)
    assert 0 not in found.blocks[0]


@pytest.mark.parametrize("windows", [(None,), (3,), (None, 3)])
@pytest.mark.parametrize("limit", [-1, 0])
def test_without_a_block_to_search_for_there_is_no_hit(
    windows: tuple[int | None, ...], limit: int
) -> None:
    config = KVCacheConfig(
        num_blocks=8,
        block_size=4,
        groups=tuple(KVCacheGroup((0,), window) for window in windows),
        bytes_per_block=1,
    )
    pool = BlockPool(8, LruEviction(EvictionContext(config=EngineConfig(), num_blocks=8)))
    assert longest_prefix(pool, group_shapes(config, 8), [b"a"], limit) == CachedPrefix()


GROUPS = st.lists(st.none() | st.integers(1, 12), min_size=1, max_size=3)


@given(data=st.data(), windows=GROUPS, block_size=st.integers(1, 4))
def test_the_hit_is_the_longest_that_all_groups_accept(
    data: st.DataObject, windows: list[int | None], block_size: int
) -> None:
    config = KVCacheConfig(
        num_blocks=64,
        block_size=block_size,
        groups=tuple(KVCacheGroup((0,), window) for window in windows),
        bytes_per_block=1,
    )
    pool = BlockPool(64, LruEviction(EvictionContext(config=EngineConfig(), num_blocks=64)))
    groups = group_shapes(config, 8)
    hashes = [bytes([index]) for index in range(10)]
    present = []
    for window in windows:
        holes = data.draw(st.sets(st.integers(0, 9), max_size=3), label=f"not cached in {window}")
        present.append([index not in holes for index in range(10)])
    for group, flags in zip(groups, present, strict=True):
        for key, flag in zip(hashes, flags, strict=True):
            if flag:
                pool.publish(pool.take(), key + group.key_suffix)
    limit = data.draw(st.integers(-1, 10), label="limit")

    def needed(window: int | None, length: int) -> range:
        tokens = length * block_size
        first = 0 if window is None else max(0, tokens - window + 1)
        return range(first // block_size, length)

    expected = max(
        length
        for length in range(max(0, limit) + 1)
        if all(
            flags[index]
            for window, flags in zip(windows, present, strict=True)
            for index in needed(window, length)
        )
    )
    found = longest_prefix(pool, groups, hashes, limit)
    assert found.num_tokens == expected * block_size
    if expected:
        for window, blocks in zip(windows, found.blocks, strict=True):
            used = [index for index, block in enumerate(blocks) if block]
            assert used == list(needed(window, expected))
