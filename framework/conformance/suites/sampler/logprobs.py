"""Log-probabilities of outputs and prompts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from framework.conformance.suites.sampler.base import (
    EVERYTHING,
    VOCAB,
    Make,
    SamplerPart,
    logits_of,
)
from framework.conformance.worlds.sampling import NEAR, Entry, Logits, entries_of
from hookspecs.types.step import LogprobColumns

__all__ = ["Logprobs"]


class Logprobs(SamplerPart):
    """Log-probabilities are those of the model, with their ranks."""

    def test_logprobs(self, make: Make, seed: int) -> None:
        """Requires nothing.
        Does: asks for none, 0, some and all logprobs in rows whose parameters change the logits.
        Must: give those of the raw logits: the chosen token, then so many of the most likely, in
        order, of the rows that asked, in order; rank 1 is the most likely.
        """
        asked = [None, 0, 5, -1, 20, 1, VOCAB, None]
        changes: list[dict[str, Any]] = [
            {"temperature": 0},
            {"top_k": 1},
            {"top_p": 0.3, "allowed_token_ids": [3, 4]},
            {"logit_bias": {2: 100.0}, "temperature": 0},
            {"temperature": 0, "repetition_penalty": 2.0},
            {"temperature": 2.0},
            {"presence_penalty": 2.0, "outputs": [1, 2]},
            EVERYTHING,
        ]
        slots, rows = make(), logits_of(seed, len(asked))
        for slot, (count, change) in enumerate(zip(asked, changes, strict=True)):
            slots.add(slot, logprobs=count, **change)
        for step in range(2):
            order = [3, 0, 6, 5, 1, 7, 2, 4] if step else list(range(len(asked)))
            batch = slots.sample(rows[order], order)
            assert not batch.failures, f"rows failed: {batch.failures}"
            wanted = [row for row, slot in enumerate(order) if asked[slot] is not None]
            assert batch.logprobs is not None and batch.logprob_rows is not None, (
                "no logprobs, though rows asked for them"
            )
            assert batch.logprob_rows.tolist() == wanted, (
                f"logprob_rows is {batch.logprob_rows.tolist()}; the rows {wanted} asked"
            )
            counts = [asked[order[row]] or 0 for row in wanted]
            tokens = [int(batch.token_ids[row]) for row in wanted]
            _expect_logprobs(batch.logprobs, rows[order][wanted], tokens, counts)

    def test_logprobs_are_finite(self, make: Make) -> None:
        """Requires nothing.
        Does: asks for all logprobs under logits with -inf, and with very small ones.
        Must: give finite numbers, the chosen token first.
        """
        slots = make(4)
        slots.add(0, temperature=0, logprobs=-1)
        batch = slots.sample([[-np.inf, 3.0, -np.inf, -1e30]])
        assert batch.logprobs is not None, "no logprobs, though the row asked for them"
        entries = entries_of(batch.logprobs)[0]
        assert [entry.token for entry in entries[:2]] == [1, 1], f"token 1 has all: {entries}"
        assert all(entry.logprob < -500 for entry in entries[2:]), f"those of -inf: {entries}"

    def test_prompt_logprobs(self, make: Make, seed: int, device: str) -> None:
        """Requires nothing.
        Does: asks for the logprobs of targets, with 0, some and all alternatives.
        Must: give the target, then the most likely tokens, of each position.
        """
        slots, rows = make(), logits_of(seed, 5)
        targets = [int(row.argmax()) if n % 2 else n for n, row in enumerate(rows)]
        for count in (0, 1, 4, VOCAB, -1):
            columns = slots.sampler.prompt_logprobs(
                torch.tensor(rows, dtype=torch.float32, device=device),
                torch.tensor(targets, dtype=torch.int64, device=device),
                count,
            )
            _expect_logprobs(columns, rows, targets, [count] * len(targets))


def _expect_logprobs(
    columns: LogprobColumns,
    rows: Logits,
    tokens: Sequence[int],
    counts: Sequence[int],
) -> None:
    positions = entries_of(columns)
    assert len(positions) == len(tokens), f"{len(positions)} positions where {len(tokens)} asked"
    for entries, row, token, count in zip(positions, rows, tokens, counts, strict=True):
        shifted = row - row.max()
        logprobs = shifted - np.log(np.exp(shifted).sum())
        order = np.argsort(-row)
        wanted = [token, *order[: len(row) if count < 0 else count].tolist()]
        expected = [Entry(t, float(logprobs[t]), int((row > row[t]).sum()) + 1) for t in wanted]
        shown = f"asked for {count} of token {token}: got {entries[:4]}, expected {expected[:4]}"
        assert [(e.token, e.rank) for e in entries] == [(e.token, e.rank) for e in expected], shown
        worst = max(abs(e.logprob - x.logprob) for e, x in zip(entries, expected, strict=True))
        assert worst < NEAR, f"log-probabilities off by {worst:.2g}; {shown}"
