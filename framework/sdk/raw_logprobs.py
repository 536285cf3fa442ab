"""Log-probabilities of the model's logits for rows whose sampler saw changed ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hookspecs.contracts.logits import SampledBatch, Sampler
from hookspecs.types.step import LogprobColumns

if TYPE_CHECKING:
    import torch

__all__ = ["RawRow", "put_raw_logprobs"]


class RawRow(NamedTuple):
    """The model's logits of a row."""

    logits: torch.Tensor
    """float32 [vocab]"""
    num_logprobs: int
    """Alternatives wanted; -1: the vocabulary."""


def put_raw_logprobs(sampled: SampledBatch, raw: Mapping[int, RawRow], sampler: Sampler) -> None:
    """Replace in `sampled.logprobs` the positions of the rows in `raw`.

    The sampler says what the logprobs of the chosen token are, as for a prompt of one position.
    """
    if not raw or sampled.logprobs is None or sampled.logprob_rows is None:
        return
    pieces = []
    ends = np.cumsum(sampled.logprobs.counts).tolist()
    for position, row in enumerate(sampled.logprob_rows.tolist()):
        if row in raw:
            pieces.append(_logprobs(raw[row], int(sampled.token_ids[row]), sampler))
        else:
            pieces.append(_position(sampled.logprobs, position, ends[position]))
    sampled.logprobs = LogprobColumns(
        counts=np.concatenate([piece.counts for piece in pieces]),
        token_ids=np.concatenate([piece.token_ids for piece in pieces]),
        logprobs=np.concatenate([piece.logprobs for piece in pieces]),
        ranks=np.concatenate([piece.ranks for piece in pieces]),
    )


def _logprobs(row: RawRow, token: int, sampler: Sampler) -> LogprobColumns:
    import torch

    target = torch.tensor([token], dtype=torch.int64, device=row.logits.device)
    return sampler.prompt_logprobs(row.logits[None], target, row.num_logprobs)


def _position(columns: LogprobColumns, position: int, end: int) -> LogprobColumns:
    begin = end - int(columns.counts[position])
    return LogprobColumns(
        counts=columns.counts[position : position + 1],
        token_ids=columns.token_ids[begin:end],
        logprobs=columns.logprobs[begin:end],
        ranks=columns.ranks[begin:end],
    )
