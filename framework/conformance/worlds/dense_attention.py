"""Attention by its definition, in float64, over keys and values that no cache has touched."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

__all__ = ["AttentionCall", "DenseAttention", "attend"]


def attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    first: int,
    *,
    scale: float,
    sliding_window: int | None = None,
    soft_cap: float | None = None,
    sinks: torch.Tensor | None = None,
) -> torch.Tensor:
    """float64 [queries, heads, size] on the host, for query [queries, heads, size], the first at
    position `first`, over key and value [keys, kv heads, size] of positions 0 to keys - 1."""
    query, key, value = (tensor.detach().cpu().double() for tensor in (query, key, value))
    groups = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    scores = torch.einsum("qhd,khd->hqk", query, key) * scale
    if soft_cap is not None:
        scores = soft_cap * torch.tanh(scores / soft_cap)
    at = torch.arange(first, first + len(query))[:, None]
    of = torch.arange(len(key))
    seen = of <= at
    if sliding_window is not None:
        seen &= of > at - sliding_window
    scores = scores.masked_fill(~seen, -torch.inf)
    if sinks is not None:
        sink = sinks.detach().cpu().double()[:, None, None].expand(-1, len(query), 1)
        scores = torch.cat([scores, sink], -1)
    weights = torch.softmax(scores, -1)[..., : len(key)]
    return torch.einsum("hqk,khd->qhd", weights, value)


class AttentionCall(NamedTuple):
    """What a model asked for in one layer."""

    layer: int
    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    how: dict[str, Any]
    """scale, sliding_window, soft_cap, sinks"""


class DenseAttention:
    """For `LoadedModel.set_attention`: keeps all keys and values of every row, by its name."""

    def __init__(self) -> None:
        self.calls: list[AttentionCall] = []
        """Of the forward that ran last."""
        self._rows: Sequence[tuple[str, int]] = ()
        self._kept: dict[tuple[str, int], tuple[torch.Tensor, torch.Tensor]] = {}

    def begin(self, rows: Sequence[tuple[str, int]]) -> None:
        """Before each forward: the rows of its flattened batch, with their number of tokens. A
        row goes on where it ended."""
        self.calls, self._rows = [], rows

    def __call__(
        self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, **how: Any
    ) -> torch.Tensor:
        """See LoadedModel.set_attention."""
        self.calls.append(AttentionCall(layer, query, key, value, how))
        lengths = [count for _, count in self._rows]
        parts = zip(*(torch.split(tensor, lengths) for tensor in (query, key, value)), strict=True)
        out = []
        for (name, _), (new_query, new_key, new_value) in zip(self._rows, parts, strict=True):
            keys, values = new_key.clone(), new_value.clone()
            before = self._kept.get((name, layer))
            if before is not None:
                keys, values = torch.cat([before[0], keys]), torch.cat([before[1], values])
            self._kept[name, layer] = (keys, values)
            out.append(attend(new_query, keys, values, len(keys) - len(new_key), **how))
        return torch.cat(out).to(query)
