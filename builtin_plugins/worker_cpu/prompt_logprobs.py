"""Log-probabilities of prompt tokens, piece by piece as the prompt is computed.

The logits at position p give the log-probability of the token at p + 1. A chunk that computes the
positions from `begin` to `end` therefore gives those of begin + 1 to end, the last excluded by
the prompt's length; the first chunk also has position 0, which has none. So the pieces of a
request, one after the other, are its whole prompt, wherever chunks are cut.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import numpy as np
import torch

from builtin_plugins.worker_cpu.batch import InputBatch
from builtin_plugins.worker_cpu.inputs import StepInputs
from hookspecs.contracts.logits import Sampler
from hookspecs.types.step import LogprobColumns

__all__ = ["PromptPiece", "logprobs_of", "prompt_pieces"]


@dataclass(frozen=True, slots=True)
class PromptPiece:
    """Logits of one row that are wanted for prompt logprobs."""

    slot: int
    token: int
    """Index of the first in the flattened batch."""
    position: int
    """Its position."""
    length: int


def prompt_pieces(inputs: StepInputs, batch: InputBatch) -> list[PromptPiece]:
    """The pieces of this step, in row order; empty in steps without such requests."""
    if not batch.prompt_logprobs:
        return []
    pieces = []
    for row, slot in enumerate(inputs.slots.tolist()):
        if slot not in batch.prompt_logprobs:
            continue
        token = int(inputs.query_start[row])
        begin = int(inputs.positions[token])
        end = min(int(inputs.seq_lens[row]), int(batch.num_prompt_tokens[slot]) - 1)
        if begin == 0 or end > begin:
            pieces.append(PromptPiece(slot, token, begin, max(0, end - begin)))
    return pieces


def logprobs_of(
    pieces: list[PromptPiece], logits: torch.Tensor, batch: InputBatch, sampler: Sampler
) -> dict[int, LogprobColumns]:
    """Slot to its piece. `logits` float32 [sum of lengths, vocab]: of the pieces, in order."""
    result: dict[int, LogprobColumns] = {}
    at = 0
    for piece in pieces:
        targets = batch.token_ids[piece.slot, piece.position + 1 :][: piece.length]
        columns = sampler.prompt_logprobs(
            logits[at : at + piece.length],
            torch.from_numpy(targets.astype(np.int64)),
            batch.prompt_logprobs[piece.slot],
        )
        if piece.position == 0:
            counts = np.concatenate((np.zeros(1, np.int32), columns.counts))
            columns = msgspec.structs.replace(columns, counts=counts)
        result[piece.slot] = columns
        at += piece.length
    return result
