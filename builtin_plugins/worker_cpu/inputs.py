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
from hookspecs.types.step import SchedulerOutput

__all__ = ["StepInputs", "attention_metadata", "flatten"]

Int64Array = npt.NDArray[np.int64]


@dataclass(slots=True)
class StepInputs:
    """int64 arrays; `tokens` is the number of scheduled tokens of all rows."""

    slots: Int64Array
    query_start: Int64Array
    """[rows + 1]: offsets of the rows' tokens."""
    seq_lens: Int64Array
    """[rows]: tokens of each row after this step."""
    max_query_len: int
    token_slots: Int64Array
    """[tokens]: the slot of each token."""
    positions: Int64Array
    """[tokens]"""
    token_ids: Int64Array
    """[tokens]"""


def flatten(scheduled: SchedulerOutput, batch: InputBatch) -> StepInputs:
    """The step's tokens, row after row."""
    slots = scheduled.slots.astype(np.int64)
    computed = scheduled.num_computed_tokens.astype(np.int64)
    rows = len(slots)
    if scheduled.total_num_scheduled_tokens == rows:  # a token each, as when all decode
        query_start, longest = np.arange(rows + 1), 1
        seq_lens, token_slots, positions = computed + 1, slots, computed
    else:
        counts = scheduled.num_scheduled_tokens.astype(np.int64)
        query_start, longest = np.concatenate(([0], np.cumsum(counts))), int(counts.max())
        seq_lens, token_slots = computed + counts, np.repeat(slots, counts)
        positions = np.repeat(computed - query_start[:-1], counts) + np.arange(query_start[-1])
    return StepInputs(
        slots=slots,
        query_start=query_start,
        seq_lens=seq_lens,
        max_query_len=longest,
        token_slots=token_slots,
        positions=positions,
        token_ids=batch.token_ids[token_slots, positions].astype(np.int64),
    )


def attention_metadata(inputs: StepInputs, batch: InputBatch) -> list[AttentionMetadata]:
    """Where the step's tokens lie in the blocks of each KV cache group; valid until the batch
    changes."""
    size = batch.block_size
    columns = inputs.positions // size
    offsets = inputs.positions - columns * size
    needed = (inputs.seq_lens + (size - 1)) // size
    max_seq_len = int(inputs.seq_lens.max())
    width = -(-max_seq_len // size)
    query_start, seq_lens = inputs.query_start.tolist(), inputs.seq_lens.tolist()
    query_start_tensor = torch.from_numpy(inputs.query_start)
    seq_lens_tensor = torch.from_numpy(inputs.seq_lens)
    found = []
    for table in batch.block_tables:
        rows = _rows(table, inputs.slots)[:, :width]
        slot_mapping = table[inputs.token_slots, columns] * size + offsets
        found.append(
            AttentionMetadata(
                query_start=query_start,
                seq_lens=seq_lens,
                max_query_len=inputs.max_query_len,
                max_seq_len=max_seq_len,
                block_tables=torch.from_numpy(rows),
                block_lists=_BlockLists(rows, needed),
                slot_mapping=torch.from_numpy(slot_mapping),
                seq_lens_tensor=seq_lens_tensor,
                query_start_tensor=query_start_tensor,
            )
        )
    return found


def _rows(table: Int64Array, slots: Int64Array) -> Int64Array:
    """`table[slots]`, without a copy for neighbours in order, as slots mostly are."""
    first, count = int(slots[0]), len(slots)
    neighbours = int(slots[-1]) - first == count - 1 and bool((slots[1:] > slots[:-1]).all())
    return table[first : first + count] if neighbours else table[slots]


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
