"""Temperature, min_p, top_k, top_p, and the draw.

Every filter keeps a beginning of the tokens in ranked order (see `ranking`), so a row's filters
amount to one number: how many tokens are kept. Tokens are then drawn by inverting the cumulative
distribution over the kept tokens in order of their ids. Everything is float64 and row by row, so
a token depends only on the row's logits, parameters and random number.
"""

from __future__ import annotations

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray

from builtin_plugins.sampler_default.ranking import ranked
from hookspecs.types.columns import Int64Column

__all__ = ["DrawColumns", "draw"]

_CHUNK_ELEMENTS = 1 << 23
"""Logits converted to float64 at once, to bound memory."""
_FIRST_WIDTH = 256
_WIDTH_GROWTH = 16


class DrawColumns(msgspec.Struct):
    """Parameters of rows to draw, one element a row."""

    temperature: NDArray[np.float64]
    min_p: NDArray[np.float64]
    top_k: Int64Column
    """Vocab size when off."""
    top_p: NDArray[np.float64]
    uniforms: NDArray[np.float64]
    """In [0, 1)."""
    filtered: NDArray[np.bool_]
    """Whether min_p, top_k or top_p is on."""

    def take(self, rows: Int64Column) -> DrawColumns:
        """The columns of some rows."""
        return DrawColumns(*(column[rows] for column in msgspec.structs.astuple(self)))


def draw(logits: torch.Tensor, rows: Int64Column, columns: DrawColumns) -> Int64Column:
    """A token for each of `rows` of float32 [all rows, vocab]; logits are not changed.

    A row must have a largest logit that is finite.
    """
    tokens: Int64Column = np.zeros(len(rows), dtype=np.int64)
    chunk = max(1, _CHUNK_ELEMENTS // logits.shape[-1])
    for filtered in (False, True):
        places = np.flatnonzero(columns.filtered == filtered)
        for start in range(0, len(places), chunk):
            part = places[start : start + chunk]
            part_logits = logits[torch.as_tensor(rows[part], device=logits.device)]
            draw_part = _draw_filtered if filtered else _draw_from_all
            tokens[part] = draw_part(part_logits, columns.take(part))
    return tokens


def _draw_from_all(logits: torch.Tensor, columns: DrawColumns) -> Int64Column:
    weights = _weights(logits, columns, logits.amax(dim=-1, keepdim=True))
    return _invert(weights, columns).cpu().numpy()


def _draw_filtered(logits: torch.Tensor, columns: DrawColumns) -> Int64Column:
    """Look at the most likely tokens first, and at more for rows whose filters keep more."""
    vocab = logits.shape[-1]
    tokens: Int64Column = np.zeros(len(columns.uniforms), dtype=np.int64)
    rows = np.arange(len(tokens))
    width = min(_FIRST_WIDTH, int(columns.top_k.max()))
    while len(rows):
        part = logits[torch.as_tensor(rows, device=logits.device)]
        chosen, decided = _draw_within(part, columns.take(rows), width)
        tokens[rows[decided]] = chosen[decided]
        rows = rows[~decided]
        width = min(width * _WIDTH_GROWTH, vocab)
    return tokens


def _draw_within(
    logits: torch.Tensor, columns: DrawColumns, width: int
) -> tuple[Int64Column, NDArray[np.bool_]]:
    """Draw with the first `width` ranked tokens; False for rows that keep more than these."""
    device, vocab = logits.device, logits.shape[-1]
    min_p = torch.as_tensor(columns.min_p, device=device)
    top_k = torch.as_tensor(columns.top_k, device=device)
    top_p = torch.as_tensor(columns.top_p, device=device)
    values, ids = ranked(logits, width)
    weights = _weights(values, columns, values[:, :1])
    sums = weights.cumsum(dim=-1)

    # The largest weight is 1, so min_p compares with it directly.
    kept = torch.minimum((weights >= min_p[:, None]).sum(dim=-1), top_k)
    total = sums.gather(1, kept[:, None] - 1).squeeze(1)
    open_end = (min_p <= 0) & (top_k >= vocab)
    if width < vocab and bool(open_end.any()):
        total[open_end] = _weights(
            logits[open_end],
            columns.take(np.flatnonzero(open_end.cpu().numpy())),
            values[open_end, :1],
        ).sum(dim=-1)
    nucleus = (sums < (top_p * total)[:, None]).sum(dim=-1) + 1
    decided = (kept < width) | (kept == top_k) | (open_end & (nucleus <= width))
    kept = torch.minimum(kept, nucleus)

    weights = weights * (torch.arange(width, device=device) < kept[:, None])
    ids, order = ids.sort(dim=-1)
    place = _invert(weights.gather(1, order), columns)
    tokens = ids.gather(1, place[:, None]).squeeze(1)
    return tokens.cpu().numpy(), decided.cpu().numpy() | (width >= vocab)


def _weights(logits: torch.Tensor, columns: DrawColumns, largest: torch.Tensor) -> torch.Tensor:
    """exp((logits - largest) / temperature), float64: probabilities times a row's constant."""
    temperature = torch.as_tensor(columns.temperature, device=logits.device)
    return ((logits.double() - largest.double()) / temperature[:, None]).exp_()


def _invert(weights: torch.Tensor, columns: DrawColumns) -> torch.Tensor:
    """int64 [rows]: the first column whose cumulative weight exceeds the random share.

    It exists: uniforms are at most 1 - 2**-53, so the share is less than the total.
    """
    sums = weights.cumsum(dim=-1)
    share = torch.as_tensor(columns.uniforms, device=weights.device)[:, None] * sums[:, -1:]
    return torch.searchsorted(sums, share, right=True).squeeze(1)
