"""Which cached tokens each query reads, as index tensors; made once a step and window."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import torch

from hookspecs.contracts.attention import AttentionMetadata

__all__ = ["DecodePlan", "PrefillPlan", "StepPlan", "step_plan"]


@dataclass(frozen=True)
class DecodePlan:
    """Rows of one query token, read as a batch of equal width, aligned at their last token."""

    tokens: torch.Tensor
    """int64 [rows]: their query tokens in the flattened batch."""
    slots: torch.Tensor
    """int64 [rows * width]: cache slots to read. Where a row is shorter than the width, its last
    token stands in: what lies in other blocks, or after the row's end, is never touched, so
    that not even a NaN there matters."""
    mask: torch.Tensor
    """bool [rows, 1, 1, width]: False for the stand-ins."""


@dataclass(frozen=True)
class PrefillPlan:
    """One row of several query tokens."""

    start: int
    end: int
    """Its query tokens in the flattened batch."""
    slots: torch.Tensor
    """int64 [keys]: every one of them is seen by at least one query."""
    mask: torch.Tensor
    """bool [1, 1, queries, keys]: causal, and within the window."""


@dataclass(frozen=True)
class StepPlan:
    """All rows of a step."""

    decode: DecodePlan | None
    prefills: tuple[PrefillPlan, ...]


def step_plan(metadata: AttentionMetadata, window: int | None, block_size: int) -> StepPlan:
    """The plan for layers with this window, kept in `metadata.cache`."""
    key = f"plan:{window}"
    plan: StepPlan | None = metadata.cache.get(key)
    if plan is None:
        plan = metadata.cache[key] = _make_plan(metadata, window, block_size)
    return plan


def _make_plan(metadata: AttentionMetadata, window: int | None, block_size: int) -> StepPlan:
    starts = metadata.query_start
    lengths = [end - start for start, end in itertools.pairwise(starts)]
    decodes = [row for row, length in enumerate(lengths) if length == 1]
    return StepPlan(
        decode=_decode_plan(metadata, decodes, window, block_size) if decodes else None,
        prefills=tuple(
            _prefill_plan(metadata, row, window, block_size)
            for row, length in enumerate(lengths)
            if length > 1
        ),
    )


def _decode_plan(
    metadata: AttentionMetadata, rows: list[int], window: int | None, block_size: int
) -> DecodePlan:
    device = metadata.block_tables.device
    index = torch.tensor(rows, device=device)
    width = max(metadata.seq_lens[row] for row in rows)
    if window is not None:
        width = min(width, window)
    lens = metadata.seq_lens_tensor[index, None]
    positions = lens - width + torch.arange(width, device=device)
    valid = positions >= 0
    positions = torch.where(valid, positions, lens - 1)
    blocks = metadata.block_tables[index].gather(1, positions // block_size)
    return DecodePlan(
        tokens=metadata.query_start_tensor[index],
        slots=(blocks * block_size + positions % block_size).flatten(),
        mask=valid[:, None, None, :],
    )


def _prefill_plan(
    metadata: AttentionMetadata, row: int, window: int | None, block_size: int
) -> PrefillPlan:
    device = metadata.block_tables.device
    start, end = metadata.query_start[row], metadata.query_start[row + 1]
    seq_len = metadata.seq_lens[row]
    first_query = seq_len - (end - start)
    first_key = 0 if window is None else max(0, first_query - window + 1)
    keys = torch.arange(first_key, seq_len, device=device)
    queries = torch.arange(first_query, seq_len, device=device)[:, None]
    mask = keys <= queries
    if window is not None:
        mask &= keys > queries - window
    slots = metadata.block_tables[row][keys // block_size] * block_size + keys % block_size
    return PrefillPlan(start=start, end=end, slots=slots, mask=mask[None, None])
