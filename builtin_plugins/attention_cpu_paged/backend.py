"""The attention backend `cpu_paged`: reads the cache's blocks where they lie.

A row's neighbouring blocks form one slice of the cache, used as a view. Only a row whose blocks
are scattered so much that reading them one by one would take longer is gathered.
"""

from __future__ import annotations

from typing import ClassVar

import torch

from builtin_plugins.attention_cpu_paged.online_softmax import attend_row
from builtin_plugins.attention_cpu_paged.tiles import row_tiles
from framework.sdk.tensors import zeros_on_demand
from hookspecs.contracts.attention import (
    AttentionBackend,
    AttentionCapability,
    AttentionMetadata,
)

__all__ = ["CpuPagedAttention"]


class CpuPagedAttention(AttentionBackend):
    """Cache: [2 (keys, values), kv heads, blocks, block size, head size], so that one head's
    tokens of neighbouring blocks are contiguous in memory."""

    capabilities: ClassVar[frozenset[AttentionCapability]] = frozenset(AttentionCapability)

    def allocate(
        self, num_blocks: int, num_kv_heads: int, head_size: int, dtype: torch.dtype
    ) -> torch.Tensor:
        shape = (2, num_kv_heads, num_blocks, self.context.block_size, head_size)
        return zeros_on_demand(shape, dtype, "cpu")

    def write(
        self,
        cache: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        metadata: AttentionMetadata,
    ) -> None:
        keys, values = cache.flatten(2, 3)
        keys.index_copy_(1, metadata.slot_mapping, key.transpose(0, 1).to(cache.dtype))
        values.index_copy_(1, metadata.slot_mapping, value.transpose(0, 1).to(cache.dtype))

    def forward(
        self,
        query: torch.Tensor,
        cache: torch.Tensor,
        metadata: AttentionMetadata,
        *,
        scale: float,
        sliding_window: int | None = None,
        soft_cap: float | None = None,
        sinks: torch.Tensor | None = None,
    ) -> torch.Tensor:
        keys, values = cache.flatten(2, 3)
        out = torch.empty(query.shape, dtype=query.dtype)
        starts = metadata.query_start
        for row, tiles in enumerate(row_tiles(metadata, sliding_window, self.context.block_size)):
            start, end = starts[row], starts[row + 1]
            out[start:end] = attend_row(
                query[start:end],
                keys,
                values,
                tiles,
                metadata.seq_lens[row] - (end - start),
                scale=scale,
                window=sliding_window,
                soft_cap=soft_cap,
                sinks=sinks,
            )
        return out

    def copy_out(self, cache: torch.Tensor, blocks: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        index = torch.tensor(blocks, dtype=torch.long)
        keys, values = cache[:, :, index].permute(0, 2, 3, 1, 4)
        return keys, values
