"""Repetition, frequency and presence penalties.

Token counts exist only for slots that use a penalty: an entry of a pool that grows by doubling.
"""

from __future__ import annotations

import numpy as np
import torch

from hookspecs.types.columns import Int32Column, Int64Column
from hookspecs.types.sampling import SamplingParams

__all__ = ["PenaltyPool"]


class PenaltyPool:
    """Counts and settings of the slots that have penalties.

    Repetition (Keskar et al., "CTRL", 2019, section 4.1): the logit of a token of prompt or
    output is divided by the penalty if positive, multiplied by it if not. Frequency and presence
    (the OpenAI API's definition): frequency times the token's count in the output, and presence
    once if it is there, are subtracted.
    """

    def __init__(self, vocab_size: int, max_num_seqs: int, device: torch.device) -> None:
        self._device = device
        self._counts = torch.zeros((0, vocab_size), dtype=torch.int32, device=device)
        """int32 [entries, vocab]: how often the output holds each token."""
        self._in_prompt = torch.zeros((0, vocab_size), dtype=torch.bool, device=device)
        self._settings = torch.zeros((0, 3, 1), dtype=torch.float32, device=device)
        """float32 [entries, 3, 1]: repetition, frequency, presence."""
        self._entry_of_slot: Int64Column = np.full(max_num_seqs, -1, dtype=np.int64)
        self._free: list[int] = []

    def add(self, slot: int, params: SamplingParams, prompt: list[int], outputs: list[int]) -> None:
        """Take an entry for a slot and count its tokens so far."""
        if not self._free:
            self._grow()
        entry = self._free.pop()
        self._entry_of_slot[slot] = entry
        self._in_prompt[entry] = self._histogram(prompt) > 0
        self._counts[entry] = self._histogram(outputs)
        self._settings[entry, :, 0] = torch.tensor(
            [params.repetition_penalty, params.frequency_penalty, params.presence_penalty]
        )

    def remove(self, slot: int) -> None:
        """Give a slot's entry back, if it has one."""
        entry = int(self._entry_of_slot[slot])
        if entry >= 0:
            self._entry_of_slot[slot] = -1
            self._free.append(entry)

    def apply(self, logits: torch.Tensor, rows: Int64Column, slots: Int32Column) -> None:
        """Penalize the given rows of float32 [all rows, vocab], in place."""
        entries = self._entries(slots)
        at = torch.as_tensor(rows, device=self._device)
        repetition, frequency, presence = self._settings[entries].unbind(dim=1)
        counts = self._counts[entries]
        used = counts > 0
        x = logits[at]
        masked = torch.isneginf(x)
        repeated = torch.where(x > 0, x / repetition, x * repetition)
        x = torch.where(self._in_prompt[entries] | used, repeated, x)
        x -= frequency * counts + presence * used
        # Extreme logits may overflow; at the largest float they stay a choice, and draws defined.
        largest = torch.finfo(torch.float32).max
        logits[at] = x.clamp_(-largest, largest).masked_fill_(masked, -torch.inf)

    def count(self, slots: Int32Column, tokens: Int64Column) -> None:
        """Add one output token to each of the given slots."""
        self._counts[self._entries(slots), torch.as_tensor(tokens, device=self._device)] += 1

    def _entries(self, slots: Int32Column) -> torch.Tensor:
        return torch.as_tensor(self._entry_of_slot[slots], device=self._device)

    def _histogram(self, tokens: list[int]) -> torch.Tensor:
        vocab = self._counts.shape[1]
        ids = np.array(tokens, dtype=np.int64)
        ids = ids[(ids >= 0) & (ids < vocab)]
        counts = np.bincount(ids, minlength=vocab).astype(np.int32)
        return torch.as_tensor(counts, device=self._device)

    def _grow(self) -> None:
        size = len(self._counts)
        more = max(size, 1)
        self._free.extend(reversed(range(size, size + more)))
        self._counts = _extended(self._counts, more)
        self._in_prompt = _extended(self._in_prompt, more)
        self._settings = _extended(self._settings, more)


def _extended(tensor: torch.Tensor, more: int) -> torch.Tensor:
    return torch.cat([tensor, tensor.new_zeros((more, *tensor.shape[1:]))])
