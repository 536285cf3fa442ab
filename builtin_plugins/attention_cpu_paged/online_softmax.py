"""Attention of one row over its tiles, with a running softmax.

Partial results over parts of the keys are merged by their maxima and sums of exponentials:
Milakov & Gimelshein, "Online normalizer calculation for softmax" (2018); Dao et al.,
"FlashAttention" (2022).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from builtin_plugins.attention_cpu_paged.tiles import Tile

__all__ = ["attend_row"]

_QUERY_TILE = 128
"""Queries whose scores lie in memory at once."""


def attend_row(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    tiles: Sequence[Tile],
    first_position: int,
    *,
    scale: float,
    window: int | None,
    soft_cap: float | None,
    sinks: torch.Tensor | None,
) -> torch.Tensor:
    """Causal attention of query [queries, heads, size], the first at `first_position`, over the
    tiles of keys and values [kv heads, slots, size]. float32 [queries, heads, size].
    """
    parts = [
        _attend_queries(
            part,
            keys,
            values,
            _visible(tiles, first_position + index * _QUERY_TILE, len(part), window),
            first_position + index * _QUERY_TILE,
            scale=scale,
            window=window,
            soft_cap=soft_cap,
            sinks=sinks,
        )
        for index, part in enumerate(torch.split(query, _QUERY_TILE))
    ]
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _visible(
    tiles: Sequence[Tile], first_query: int, queries: int, window: int | None
) -> Sequence[Tile]:
    """The tiles, cut to the keys that at least one of the queries sees."""
    if queries == 1:
        return tiles
    first_key = 0 if window is None else max(0, first_query - window + 1)
    cut = (tile.cut(first_key, first_query + queries) for tile in tiles)
    return [tile for tile in cut if tile.length > 0]


def _attend_queries(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    tiles: Sequence[Tile],
    first_query: int,
    *,
    scale: float,
    window: int | None,
    soft_cap: float | None,
    sinks: torch.Tensor | None,
) -> torch.Tensor:
    queries, heads, size = query.shape
    kv_heads = keys.shape[0]
    groups = heads // kv_heads
    # [kv heads, groups * queries, size]: the query heads of a kv head are more queries of it.
    grouped = query.view(queries, kv_heads, groups, size).permute(1, 2, 0, 3)
    grouped = grouped.reshape(kv_heads, groups * queries, size).float() * scale

    def scores_of(tile: Tile) -> torch.Tensor:
        key = keys[:, tile.slots].float()
        scores = torch.bmm(grouped, key.transpose(1, 2))
        if soft_cap is not None:
            scores = soft_cap * torch.tanh(scores / soft_cap)
        mask = _mask(tile, first_query, queries, window)
        if mask is not None:
            scores.view(kv_heads, groups, queries, -1).masked_fill_(~mask, -torch.inf)
        return scores

    def value_of(tile: Tile) -> torch.Tensor:
        return values[:, tile.slots].float()

    if len(tiles) == 1 and sinks is None:
        # Nothing to merge: the usual decode, at half the number of operations.
        out = torch.bmm(torch.softmax(scores_of(tiles[0]), -1), value_of(tiles[0]))
    else:
        top, total = _initial(sinks, kv_heads, groups, queries)
        out = torch.zeros_like(grouped)
        for tile in tiles:
            scores = scores_of(tile)
            new_top = torch.maximum(top, scores.amax(-1, keepdim=True))
            weights = torch.exp(scores - new_top)
            shrink = torch.exp(top - new_top)
            total = total * shrink + weights.sum(-1, keepdim=True)
            out = torch.baddbmm(out * shrink, weights, value_of(tile))
            top = new_top
        out = out / total
    return out.view(kv_heads, groups, queries, size).permute(2, 0, 1, 3).reshape(query.shape)


def _initial(
    sinks: torch.Tensor | None, kv_heads: int, groups: int, queries: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Maximum and sum [kv heads, groups * queries, 1] before the first tile. A sink is a key
    seen before all others, with a value of zero."""
    shape = (kv_heads, groups * queries, 1)
    if sinks is None:
        # The lowest finite number: a tile in which a query sees nothing then adds exp(-inf).
        return torch.full(shape, torch.finfo(torch.float32).min), torch.zeros(shape)
    top = sinks.float().view(kv_heads, groups, 1).expand(-1, -1, queries).reshape(shape)
    return top, torch.ones(shape)


def _mask(tile: Tile, first_query: int, queries: int, window: int | None) -> torch.Tensor | None:
    """bool [queries, tile length]; None where every query sees every key of the tile."""
    last_query = first_query + queries - 1
    causal = tile.position + tile.length - 1 > first_query
    bounded = window is not None and tile.position <= last_query - window
    if not causal and not bounded:
        return None
    query = torch.arange(first_query, first_query + queries)[:, None]
    key = torch.arange(tile.position, tile.position + tile.length)
    mask = key <= query
    if window is not None:
        mask &= key > query - window
    return mask
