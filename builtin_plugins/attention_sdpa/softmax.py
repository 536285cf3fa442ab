"""softmax(q k^T) v for a batch of equal shapes, with soft cap and sinks."""

from __future__ import annotations

import torch
from torch.nn.functional import scaled_dot_product_attention

__all__ = ["attend"]

_QUERY_TILE = 256
"""Queries whose scores lie in memory at once, where torch's fused operation can not be used."""


def attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor,
    *,
    scale: float,
    soft_cap: float | None,
    sinks: torch.Tensor | None,
) -> torch.Tensor:
    """Attention of query [batch, heads, queries, size] over key and value [batch, kv heads, keys,
    size]; bool mask [batch, 1, queries, keys], True where a query sees a key, at least one each.

    `sinks` float [heads]: the logit of one more key without a value, which takes its share of
    the probability. Softmax is computed in float32. Same shape and dtype as query.
    """
    groups = query.shape[1] // key.shape[1]
    if query.shape[2] == 1 and soft_cap is None and sinks is None:
        # The query heads of one kv head see the same keys, so they are passed as its queries:
        # nothing is expanded.
        grouped = query.reshape(query.shape[0], key.shape[1], groups, query.shape[3])
        out = scaled_dot_product_attention(grouped, key, value, attn_mask=mask, scale=scale)
        return out.reshape(query.shape)
    if groups > 1:
        key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    if soft_cap is None and sinks is None:
        return scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scale)
    key, value = key.float(), value.float()
    tiles = [
        _attend_tile(part, key, value, part_mask, scale, soft_cap, sinks).to(query.dtype)
        for part, part_mask in zip(
            torch.split(query, _QUERY_TILE, 2), torch.split(mask, _QUERY_TILE, 2), strict=True
        )
    ]
    return torch.cat(tiles, 2)


def _attend_tile(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor,
    scale: float,
    soft_cap: float | None,
    sinks: torch.Tensor | None,
) -> torch.Tensor:
    scores = query.float() @ key.transpose(2, 3) * scale
    if soft_cap is not None:
        scores = soft_cap * torch.tanh(scores / soft_cap)
    scores = scores.masked_fill(~mask, -torch.inf)
    if sinks is None:
        return torch.softmax(scores, -1) @ value
    sink = sinks.float().view(1, -1, 1, 1).expand(*scores.shape[:3], 1)
    return torch.softmax(torch.cat([scores, sink], -1), -1)[..., :-1] @ value
