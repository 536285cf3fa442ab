"""From what layers keep to the shape of the KV cache: groups, block bytes, number of blocks.

Layers that keep the same tokens (all, or one sliding window) share block tables. A pool of
equal blocks serves all groups: every group has the same number of layers (the last of a kind
may have fewer), and a block holds `block_size` tokens of the layers of one group.
"""

from __future__ import annotations

from collections.abc import Callable

from hookspecs.config import CacheConfig
from hookspecs.errors import ConfigError, ContractViolation
from hookspecs.types.kv import KVCacheConfig, KVCacheGroup, KVLayerSpec

__all__ = ["form_groups", "make_kv_config"]


def form_groups(specs: list[KVLayerSpec], *, windows: bool) -> tuple[KVCacheGroup, ...]:
    """Groups of equal size, full attention first.

    Layers of different bytes a token can not share buffers, and without `windows` no manager
    frees what left a window: then all layers keep all tokens in one group.
    """
    kinds: dict[int | None, list[int]] = {}
    for spec in specs:
        kinds.setdefault(spec.sliding_window, []).append(spec.layer)
    if len(kinds) > 1 and (not windows or len({spec.bytes_per_token for spec in specs}) > 1):
        return (KVCacheGroup(layers=tuple(spec.layer for spec in specs)),)
    if not windows:
        kinds = {None: [spec.layer for spec in specs]}
    size = min(map(len, kinds.values()))
    groups: list[KVCacheGroup] = []
    for window in sorted(kinds, key=lambda w: (w is not None, w or 0)):
        layers = kinds[window]
        groups.extend(
            KVCacheGroup(tuple(layers[start : start + size]), window)
            for start in range(0, len(layers), size)
        )
    return tuple(groups)


def make_kv_config(
    specs: list[KVLayerSpec],
    cache: CacheConfig,
    *,
    available_bytes: Callable[[], int],
    windows: bool,
    max_useful_tokens: int | None,
) -> KVCacheConfig:
    """The shape of the cache: `cache.num_blocks`, or what fits into the available bytes.

    Without an explicit size, no more blocks than `max_useful_tokens` could ever fill; None where
    unused blocks keep prefixes, so that there is no such bound.
    """
    if cache.num_blocks is not None and cache.kv_bytes is not None:
        raise ConfigError(
            f"cache.num_blocks is {cache.num_blocks} and cache.kv_bytes is {cache.kv_bytes}; "
            "give one of them"
        )
    if not specs:
        raise ContractViolation(
            "kv_layer_specs is empty. Blocks also bound how many tokens are in the engine: a "
            "worker that keeps no KV describes one layer of a few bytes"
        )
    groups = form_groups(specs, windows=windows)
    by_layer = {spec.layer: spec for spec in specs}
    num_buffers = max(len(group.layers) for group in groups)
    # Buffer i holds layer i of every group; layers of one buffer have equal bytes a token.
    per_token = sum(
        max(by_layer[g.layers[i]].bytes_per_token for g in groups if i < len(g.layers))
        for i in range(num_buffers)
    )
    bytes_per_block = max(1, per_token * cache.block_size)
    if cache.num_blocks is not None:
        num_blocks = cache.num_blocks
    else:
        available = available_bytes()
        num_blocks = available // bytes_per_block - 1
        if cache.kv_bytes is None and max_useful_tokens is not None:
            useful = -(-max_useful_tokens // cache.block_size) * len(groups)
            num_blocks = min(num_blocks, useful)
        if num_blocks < 2:
            raise ConfigError(
                f"the KV cache has {available} bytes, which is {max(0, num_blocks)} blocks of "
                f"{bytes_per_block} bytes ({cache.block_size} tokens); at least 2 are needed. "
                "Raise cache.kv_bytes or lower cache.block_size"
            )
    return KVCacheConfig(
        num_blocks=num_blocks + 1,
        block_size=cache.block_size,
        groups=groups,
        bytes_per_block=bytes_per_block,
    )
