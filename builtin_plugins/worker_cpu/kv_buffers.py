"""The KV cache's buffers, and which layer uses which."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from hookspecs.contracts.attention import AttentionBackend
from hookspecs.errors import ConfigError, UnsupportedModelError
from hookspecs.types.kv import KVCacheConfig, KVLayerSpec

__all__ = ["LayerCache", "allocate_buffers"]


@dataclass(frozen=True)
class LayerCache:
    """Where one layer's keys and values lie."""

    group: int
    buffer: Any
    """In the attention backend's layout; shared with one layer of each other group."""


def allocate_buffers(
    config: KVCacheConfig, specs: Sequence[KVLayerSpec], backend: AttentionBackend
) -> dict[int, LayerCache]:
    """The cache of each layer. Layer i of every group lies in buffer i.

    UnsupportedModelError when layers that share a buffer differ in shape or type; ConfigError when
    there is no memory for them.
    """
    by_layer = {spec.layer: spec for spec in specs}
    caches: dict[int, LayerCache] = {}
    for index in range(config.num_buffers):
        members = [
            (number, group.layers[index])
            for number, group in enumerate(config.groups)
            if index < len(group.layers)
        ]
        shapes = {
            (spec.num_kv_heads, spec.head_size, spec.dtype)
            for spec in (by_layer[layer] for _, layer in members)
        }
        if len(shapes) != 1:
            raise UnsupportedModelError(
                f"layers {[layer for _, layer in members]} would share one buffer of the KV cache, "
                f"but their (kv heads, head size, dtype) differ: {sorted(shapes)}. The worker "
                "`cpu` serves models whose layers keep keys and values of one shape."
            )
        heads, size, dtype = shapes.pop()
        try:
            buffer = backend.allocate(config.num_blocks, heads, size, getattr(torch, dtype))
        except MemoryError as error:
            raise ConfigError(
                f"the KV cache of {config.num_blocks} blocks, {config.bytes_per_block} bytes each, "
                f"does not fit into memory: {error}. Lower cache.kv_bytes (or cache.num_blocks), "
                "or leave it unset."
            ) from error
        caches.update({layer: LayerCache(number, buffer) for number, layer in members})
    return caches
