"""Groups of layers, size of the cache, and the limit that it sets."""

from __future__ import annotations

import pytest

from framework.core.kv_setup import form_groups, make_kv_config
from framework.core.limits import fit_model_len
from hookspecs.config import CacheConfig
from hookspecs.errors import ConfigError
from hookspecs.types.kv import KVLayerSpec


def spec(layer: int, window: int | None = None, head_size: int = 8) -> KVLayerSpec:
    return KVLayerSpec(layer, 2, head_size, "float32", 4, window)


def test_uniform_layers_form_one_group() -> None:
    (group,) = form_groups([spec(0), spec(1)], windows=True)
    assert (group.layers, group.sliding_window) == ((0, 1), None)


def test_hybrid_layers_form_groups_of_equal_size() -> None:
    specs = [spec(i, None if i % 6 == 5 else 16) for i in range(12)]
    groups = form_groups(specs, windows=True)
    assert [len(group.layers) for group in groups] == [2] * 6
    assert [group.sliding_window for group in groups] == [None] + [16] * 5
    assert sorted(layer for group in groups for layer in group.layers) == list(range(12))


def test_a_manager_without_windows_keeps_all_tokens() -> None:
    groups = form_groups([spec(0, 16), spec(1)], windows=False)
    assert [(group.layers, group.sliding_window) for group in groups] == [((0, 1), None)]
    groups = form_groups([spec(0, 16), spec(1, 16)], windows=False)
    assert [(group.layers, group.sliding_window) for group in groups] == [((0, 1), None)]


def test_layers_of_different_size_share_no_buffer() -> None:
    groups = form_groups([spec(0, 16, head_size=8), spec(1, head_size=16)], windows=True)
    assert [(group.layers, group.sliding_window) for group in groups] == [((0, 1), None)]


def make(cache: CacheConfig, available: int = 10**6, useful: int = 10**6) -> int:
    return make_kv_config(
        [spec(0), spec(1)],
        cache,
        available_bytes=lambda: available,
        windows=True,
        max_useful_tokens=useful,
    ).num_blocks


def test_size_by_blocks_bytes_and_use() -> None:
    per_block = 2 * (2 * 2 * 8 * 4) * 16
    assert make(CacheConfig(num_blocks=5)) == 6
    assert make(CacheConfig(kv_bytes=1), available=10 * per_block) == 10
    assert make(CacheConfig(), available=10 * per_block, useful=40) == 4
    assert make(CacheConfig(kv_bytes=1), available=10 * per_block, useful=40) == 10


def test_too_small_a_cache_names_both_numbers() -> None:
    with pytest.raises(ConfigError, match=r"1000 bytes.*4096 bytes.*kv_bytes"):
        make(CacheConfig(), available=1000)


@pytest.mark.parametrize("capacity", [0, 1, 31, 99, 100, 500])
def test_fitted_limit(capacity: int) -> None:
    assert fit_model_len(100, lambda n: n <= capacity) == min(100, capacity)


def test_blocks_and_bytes_exclude_each_other() -> None:
    with pytest.raises(ConfigError, match=r"num_blocks is 5.*kv_bytes is 9"):
        make(CacheConfig(num_blocks=5, kv_bytes=9))
