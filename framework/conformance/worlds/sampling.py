"""What sampling parameters mean, in float64; and slots of a sampler that are followed along."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray

from hookspecs.contracts.logits import SampledBatch, Sampler
from hookspecs.types.sampling import SamplingParams
from hookspecs.types.step import LogprobColumns, NewRequest

__all__ = ["NEAR", "Entry", "Logits", "Slots", "adjusted", "entries_of", "kept", "probabilities"]

Logits = NDArray[np.float64]
NEAR = 1e-4
"""Logits that differ by less may change places where sums are of float32."""


def adjusted(logits: Logits, request: NewRequest) -> Logits:
    """Logits after all that comes before temperature: -inf for what is masked."""
    params = request.sampling_params
    outputs = request.token_ids[request.num_prompt_tokens :]
    x = logits.copy()
    if params.allowed_token_ids is not None:
        x[np.setdiff1d(np.arange(len(x)), params.allowed_token_ids)] = -np.inf
    for word in params.bad_words_token_ids or ():
        start = word[:-1]
        if not start or outputs[-len(start) :] == start:
            x[word[-1]] = -np.inf
    if len(outputs) < params.min_tokens:
        ends = [*(params.stop_token_ids or ()), request.eos_token_id]
        x[[token for token in ends if token is not None]] = -np.inf
    for token, bias in (params.logit_bias or {}).items():
        x[token] += bias
    for token in set(request.token_ids):
        by = params.repetition_penalty
        x[token] = x[token] / by if x[token] > 0 else x[token] * by
    for token in set(outputs):
        x[token] -= params.frequency_penalty * outputs.count(token) + params.presence_penalty
    return x


def probabilities(x: Logits, params: SamplingParams) -> Logits:
    """What each token is drawn with, from adjusted logits of which no two are equal."""
    weights = np.exp((x - x.max()) / params.temperature)
    order = np.argsort(-x)
    order = order[weights[order] >= params.min_p]
    if params.top_k > 0:
        order = order[: params.top_k]
    sums = np.cumsum(weights[order])
    # The fewest of the most likely tokens whose share reaches top_p.
    order = order[: int((sums < params.top_p * sums[-1]).sum()) + 1]
    drawn = np.zeros(len(x))
    drawn[order] = weights[order] / weights[order].sum()
    return drawn


def kept(x: Logits, params: SamplingParams) -> set[int]:
    """The tokens that may be drawn from adjusted logits; at the borders of filters, and of equals,
    all that rounding may let in."""
    if params.greedy:
        return set(np.flatnonzero(x >= x.max() - NEAR).tolist())
    weights = np.exp((x - x.max()) / params.temperature)
    certain = x[None, :] > x[:, None] + NEAR  # [token, those that come before it in any case]
    near = np.exp(NEAR / params.temperature)
    inside = (weights > 0) & (weights * near >= params.min_p)
    if params.top_k > 0:
        inside &= certain.sum(1) < params.top_k
    mass = weights[inside].sum() * near
    inside &= (certain * np.where(inside, weights, 0)).sum(1) < params.top_p * mass * near
    return set(np.flatnonzero(inside).tolist())


class Entry(NamedTuple):
    """One log-probability."""

    token: int
    logprob: float
    rank: int


def entries_of(columns: LogprobColumns) -> list[list[Entry]]:
    """Of each position. AssertionError when the columns do not fit each other."""
    types = {
        "counts": (columns.counts, np.int32),
        "token_ids": (columns.token_ids, np.int32),
        "logprobs": (columns.logprobs, np.float32),
        "ranks": (columns.ranks, np.int32),
    }
    for name, (column, dtype) in types.items():
        assert column.dtype == dtype, f"{name} is of {column.dtype}, not of {np.dtype(dtype)}"
    total = int(columns.counts.sum())
    sizes = {name: len(column) for name, (column, _) in types.items() if name != "counts"}
    assert set(sizes.values()) == {total}, f"counts sum up to {total}, but the columns: {sizes}"
    assert np.isfinite(columns.logprobs).all(), "a log-probability is not finite"
    every = [
        Entry(*entry)
        for entry in zip(
            columns.token_ids.tolist(),
            columns.logprobs.tolist(),
            columns.ranks.tolist(),
            strict=True,
        )
    ]
    bounds = [0, *np.cumsum(columns.counts).tolist()]
    return [every[begin:end] for begin, end in itertools.pairwise(bounds)]


class Slots:
    """Requests in the slots of a sampler."""

    def __init__(self, sampler: Sampler, vocab_size: int, device: str) -> None:
        self.sampler = sampler
        self.requests: dict[int, NewRequest] = {}
        """By slot, with the tokens that were chosen so far."""
        self._vocab_size, self._device = vocab_size, device

    def add(
        self,
        slot: int,
        prompt: Sequence[int] = (0,),
        outputs: Sequence[int] = (),
        *,
        eos: int | None = None,
        request_id: str | None = None,
        **params: Any,
    ) -> NewRequest:
        """A request starts, or resumes with `outputs`; `params` of its SamplingParams."""
        request = NewRequest(
            request_id=f"r{slot}" if request_id is None else request_id,
            slot=slot,
            token_ids=[*prompt, *outputs],
            num_prompt_tokens=len(prompt),
            num_computed_tokens=0,
            block_ids=([],),
            sampling_params=SamplingParams(**params),
            eos_token_id=eos,
        )
        self.sampler.add(request)
        # A list of its own: the sampler may keep the one that it was given.
        own = msgspec.structs.replace(request, token_ids=list(request.token_ids))
        self.requests[slot] = own
        return own

    def remove(self, slot: int) -> None:
        """It ended, or was preempted."""
        del self.requests[slot]
        self.sampler.remove(slot)

    def sample(self, logits: Any, slots: Sequence[int] | None = None) -> SampledBatch:
        """A token for each row of logits, of which the sampler gets a copy; None: all slots.
        AssertionError when the batch has not the form that the contract gives it."""
        chosen = list(self.requests) if slots is None else list(slots)
        rows = np.array(logits, dtype=np.float32)
        tensor = torch.from_numpy(rows.copy()).to(self._device)
        batch = self.sampler.sample(tensor, np.array(chosen, dtype=np.int32))
        self._check(batch, len(chosen))
        for row, slot in enumerate(chosen):
            if row not in batch.failures:
                self.requests[slot].token_ids.append(int(batch.token_ids[row]))
        return batch

    def tokens(self, logits: Any, slots: Sequence[int] | None = None) -> list[int]:
        """The same, where no row may fail."""
        batch = self.sample(logits, slots)
        assert not batch.failures, f"rows failed: {batch.failures}"
        return batch.token_ids.tolist()  # type: ignore[no-any-return]

    def _check(self, batch: SampledBatch, rows: int) -> None:
        assert isinstance(batch, SampledBatch), f"sample gave {batch!r}, no SampledBatch"
        tokens = batch.token_ids
        assert tokens.dtype == np.int32 and tokens.shape == (rows,), (
            f"token_ids is {tokens.dtype}{list(tokens.shape)}; it must be int32[{rows}]"
        )
        strange = [row for row in batch.failures if not 0 <= row < rows]
        assert not strange, f"failures name the rows {strange} of a batch of {rows}"
        good = np.delete(tokens, list(batch.failures))
        assert ((good >= 0) & (good < self._vocab_size)).all(), (
            f"token ids {good.tolist()} of a vocabulary of {self._vocab_size}"
        )
