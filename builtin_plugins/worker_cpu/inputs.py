"""A step's rows as one flattened batch: prompt chunks and single tokens side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import overload

import numpy as np
import numpy.typing as npt
import torch

from builtin_plugins.worker_cpu.batch import InputBatch
from hookspecs.contracts.attention import AttentionMetadata
from hookspecs.types.columns import Int32Column
from hookspecs.types.step import SchedulerOutput

__all__ = ["StepInputs", "attention_metadata", "flatten"]

Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True)
class StepInputs:
    """int64 arrays; `tokens` is the number of scheduled tokens of all rows."""

    slots: Int32Column
    query_start: Int64Array
    """[rows + 1]: offsets of the rows' tokens."""
    seq_lens: Int64Array
    """[rows]: tokens of each row after this step."""
    token_slots: Int64Array
    """[tokens]: the slot of each token."""
    positions: Int64Array
    """[tokens]"""
    token_ids: Int64Array
    """[tokens]"""


def flatten(scheduled: SchedulerOutput, batch: InputBatch) -> StepInputs:
    """The step's tokens, row after row."""
    counts = scheduled.num_scheduled_tokens.astype(np.int64)
    computed = scheduled.num_computed_tokens.astype(np.int64)
    query_start = np.concatenate(([0], np.cumsum(counts)))
    token_slots = np.repeat(scheduled.slots.astype(np.int64), counts)
    positions = np.repeat(computed - query_start[:-1], counts) + np.arange(query_start[-1])
    return StepInputs(
        slots=scheduled.slots,
        query_start=query_start,
        seq_lens=computed + counts,
        token_slots=token_slots,
        positions=positions,
        token_ids=batch.token_ids[token_slots, positions].astype(np.int64),
    )


def attention_metadata(inputs: StepInputs, batch: InputBatch, group: int) -> AttentionMetadata:
    """Where the step's tokens lie in the blocks of one KV cache group."""
    size = batch.block_size
    needed = -(-inputs.seq_lens // size)
    tables = batch.block_rows(group, inputs.slots, int(needed.max())).astype(np.int64)
    # A table may have blocks for tokens to come.
    tables[np.arange(tables.shape[1]) >= needed[:, None]] = 0
    blocks = batch.block_tables[group][inputs.token_slots, inputs.positions // size]
    return AttentionMetadata(
        query_start=inputs.query_start.tolist(),
        seq_lens=inputs.seq_lens.tolist(),
        max_query_len=int(np.diff(inputs.query_start).max()),
        max_seq_len=int(inputs.seq_lens.max()),
        block_tables=torch.from_numpy(tables),
        block_lists=_BlockLists(tables, needed),
        slot_mapping=torch.from_numpy(blocks * np.int64(size) + inputs.positions % size),
        seq_lens_tensor=torch.from_numpy(inputs.seq_lens),
        query_start_tensor=torch.from_numpy(inputs.query_start),
    )


class _BlockLists(Sequence[list[int]]):
    """Block tables as lists, made when they are first read: most backends have no use for them."""

    def __init__(self, tables: Int64Array, counts: Int64Array) -> None:
        self._tables = tables
        self._counts = counts

    @cached_property
    def _lists(self) -> list[list[int]]:
        counts = self._counts.tolist()
        return [row[:count] for row, count in zip(self._tables.tolist(), counts, strict=True)]

    def __len__(self) -> int:
        return len(self._counts)

    @overload
    def __getitem__(self, index: int) -> list[int]: ...
    @overload
    def __getitem__(self, index: slice) -> list[list[int]]: ...
    def __getitem__(self, index: int | slice) -> list[int] | list[list[int]]:
        return self._lists[index]
