"""The order of tokens that everything here uses: by logit, descending; equals by lower id."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

__all__ = ["argmax", "ranked"]


def argmax(logits: torch.Tensor) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """First token of each row of float32 [rows, vocab], and its logit.

    The logit is NaN when the row holds NaN.
    """
    if logits.device.type == "cpu":
        # Vectorised for float32, which torch's argmax on CPU is not (20 times slower).
        values = logits.numpy()
        ids = values.argmax(axis=-1)
        return ids, values[np.arange(len(ids)), ids]
    best, tokens = logits.max(dim=-1)
    return tokens.cpu().numpy(), best.cpu().numpy()


def ranked(logits: torch.Tensor, width: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The first `width` tokens of each row of [rows, vocab]: logits and int64 ids, in order.

    Tokens at -inf follow all others, in no defined order.
    """
    if width >= logits.shape[-1]:
        return _sorted(logits, width)
    values, ids = logits.topk(width + 1, dim=-1)
    equal = (values[:, 1:] == values[:, :-1]) & ~torch.isneginf(values[:, 1:])
    values, ids = values[:, :width], ids[:, :width]
    # topk orders equals as it likes, and chooses freely among those at its end.
    tied = equal.any(dim=-1)
    if bool(tied.any()):
        values[tied], ids[tied] = _sorted(logits[tied], width)
    return values, ids


def _sorted(logits: torch.Tensor, width: int) -> tuple[torch.Tensor, torch.Tensor]:
    values, ids = torch.sort(logits, dim=-1, descending=True, stable=True)
    return values[:, :width], ids[:, :width]
