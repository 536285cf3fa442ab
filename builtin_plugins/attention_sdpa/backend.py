"""The attention backend `sdpa`: gathers a row's keys and values, then plain torch.

The reference that other backends are compared with; runs on any torch device.
"""

from __future__ import annotations

from typing import ClassVar

import torch

from builtin_plugins.attention_sdpa.plan import step_plan
from builtin_plugins.attention_sdpa.softmax import attend
from framework.sdk.tensors import zeros_on_demand
from hookspecs.contracts.attention import (
    AttentionBackend,
    AttentionCapability,
    AttentionMetadata,
)

__all__ = ["SdpaAttention"]


class SdpaAttention(AttentionBackend):
    """Cache: [2 (keys, values), blocks, block size, kv heads, head size]."""

    capabilities: ClassVar[frozenset[AttentionCapability]] = frozenset(AttentionCapability)

    def allocate(
        self, num_blocks: int, num_kv_heads: int, head_size: int, dtype: torch.dtype
    ) -> torch.Tensor:
        shape = (2, num_blocks, self.context.block_size, num_kv_heads, head_size)
        return zeros_on_demand(shape, dtype, self.context.device)

    def write(
        self,
        cache: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        metadata: AttentionMetadata,
    ) -> None:
        keys, values = cache.flatten(1, 2)
        keys.index_copy_(0, metadata.slot_mapping, key.to(cache.dtype))
        values.index_copy_(0, metadata.slot_mapping, value.to(cache.dtype))

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
        plan = step_plan(metadata, sliding_window, self.context.block_size)
        keys, values = cache.flatten(1, 2)
        out = torch.empty(query.shape, dtype=query.dtype, device=query.device)
        if plan.decode is not None:
            decode = plan.decode
            rows = len(decode.tokens)
            shape = (rows, -1, *keys.shape[1:])
            out[decode.tokens] = attend(
                query[decode.tokens][:, :, None],
                keys[decode.slots].view(shape).transpose(1, 2).to(query.dtype),
                values[decode.slots].view(shape).transpose(1, 2).to(query.dtype),
                decode.mask,
                scale=scale,
                soft_cap=soft_cap,
                sinks=sinks,
            )[:, :, 0]
        for prefill in plan.prefills:
            out[prefill.start : prefill.end] = attend(
                query[None, prefill.start : prefill.end].transpose(1, 2),
                keys[prefill.slots][None].transpose(1, 2).to(query.dtype),
                values[prefill.slots][None].transpose(1, 2).to(query.dtype),
                prefill.mask,
                scale=scale,
                soft_cap=soft_cap,
                sinks=sinks,
            )[0].transpose(0, 1)
        return out

    def copy_out(self, cache: torch.Tensor, blocks: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        index = torch.tensor(blocks, dtype=torch.long, device=cache.device)
        return cache[0, index], cache[1, index]
