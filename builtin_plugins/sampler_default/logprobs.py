"""Log-probabilities of raw logits, as columns."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from builtin_plugins.sampler_default.ranking import ranked
from hookspecs.types.columns import Int64Column
from hookspecs.types.step import LogprobColumns

__all__ = ["LOWEST", "logprob_columns"]

LOWEST = -9999.0
"""Stands for everything lower, and for -inf and NaN: JSON has no number for these."""
_CHUNK_ELEMENTS = 1 << 24

Dense = tuple[NDArray[np.int32], NDArray[np.float32], NDArray[np.int32]]


def logprob_columns(
    logits: torch.Tensor, targets: torch.Tensor, num_logprobs: Int64Column
) -> LogprobColumns:
    """Columns for the positions of float32 logits [positions, vocab].

    Each position has its int64 target, then the num_logprobs[position] most likely tokens (-1:
    all; no more than there are). A rank is 1 + the number of tokens that are more likely.
    """
    vocab = logits.shape[-1]
    widths = np.where(num_logprobs < 0, vocab, np.minimum(num_logprobs, vocab))
    pieces: list[Dense] = [_EMPTY] * len(widths)
    for width in np.unique(widths).tolist():
        group = np.flatnonzero(widths == width)
        step = max(1, _CHUNK_ELEMENTS // vocab)
        for start in range(0, len(group), step):
            at = group[start : start + step]
            index = torch.as_tensor(at, device=logits.device)
            ids, values, ranks = _dense(logits[index], targets[index], width)
            for i, position in enumerate(at.tolist()):
                pieces[position] = (ids[i], values[i], ranks[i])
    if not pieces:
        pieces = [_EMPTY]
    ids, values, ranks = (np.concatenate(column) for column in zip(*pieces, strict=True))
    return LogprobColumns((widths + 1).astype(np.int32), ids, values, ranks)


def _dense(logits: torch.Tensor, targets: torch.Tensor, width: int) -> Dense:
    """[positions, 1 + width] ids, log-probabilities and ranks."""
    target = targets[:, None]
    target_logit = logits.gather(1, target)
    target_rank = (logits > target_logit).sum(dim=-1, keepdim=True) + 1
    values, ids = ranked(logits, width) if width else (logits[:, :0], target[:, :0])
    # Of equals, all have the rank of the first.
    places = torch.arange(width, device=logits.device).expand(values.shape).clone()
    places[:, 1:][values[:, 1:] == values[:, :-1]] = 0
    ranks = places.cummax(dim=-1).values + 1 if width else places
    logprobs = torch.cat([target_logit, values], dim=-1) - logits.logsumexp(dim=-1, keepdim=True)
    logprobs = logprobs.nan_to_num(nan=LOWEST, neginf=LOWEST).clamp_(min=LOWEST)
    return (
        torch.cat([target, ids], dim=-1).to(torch.int32).cpu().numpy(),
        logprobs.cpu().numpy(),
        torch.cat([target_rank, ranks], dim=-1).to(torch.int32).cpu().numpy(),
    )


_EMPTY: Dense = (
    np.zeros(0, dtype=np.int32),
    np.zeros(0, dtype=np.float32),
    np.zeros(0, dtype=np.int32),
)
