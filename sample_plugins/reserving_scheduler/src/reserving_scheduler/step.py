"""One step's decision while it is made. Core process, main thread."""

from __future__ import annotations

from itertools import accumulate

import numpy as np
from hookspecs.contracts.request_view import RequestTable
from hookspecs.types.columns import Int32Column
from hookspecs.types.step import BlockColumns, NewRequest, SchedulerOutput

__all__ = ["StepBuilder"]


class StepBuilder:
    """Collects rows, and makes the columns that the kernel wants."""

    def __init__(self, table: RequestTable, budget: int) -> None:
        self._table = table
        self.budget = budget
        """Tokens that the step may still take."""
        self._slots: list[int] = []
        self._tokens: list[int] = []
        self._started: list[NewRequest] = []
        self._grown: list[tuple[int, tuple[list[int], ...]]] = []

    def go_on(self, slot: int, num_tokens: int) -> None:
        """A running request computes so many tokens, at least 1."""
        self._slots.append(slot)
        self._tokens.append(num_tokens)
        self.budget -= num_tokens

    def grow(self, slot: int, blocks: tuple[list[int], ...]) -> None:
        """A running request got blocks, one list a KV cache group."""
        self._grown.append((slot, blocks))

    def start(self, new: NewRequest, num_tokens: int) -> None:
        """A request starts, and computes so many tokens."""
        self._started.append(new)
        self.go_on(new.slot, num_tokens)

    def output(self) -> SchedulerOutput:
        """The step. `new_requests` have their blocks in themselves, so `new_blocks` tells of
        requests that ran before only."""
        table, slots, tokens = self._table, _column(self._slots), _column(self._tokens)
        computed = table.num_computed_tokens[slots]
        return SchedulerOutput(
            step=0,
            slots=slots,
            num_scheduled_tokens=tokens,
            num_computed_tokens=computed,
            samples=computed + tokens == table.num_tokens[slots],
            total_num_scheduled_tokens=sum(self._tokens),
            new_requests=self._started,
            new_blocks=self._block_columns(),
        )

    def _block_columns(self) -> tuple[BlockColumns, ...]:
        """One a group: the blocks of all rows in one column, and where those of each row end."""
        if not self._grown:
            return ()
        slots = _column([slot for slot, _ in self._grown])
        groups = zip(*(blocks for _, blocks in self._grown), strict=True)
        return tuple(
            BlockColumns(
                slots=slots,
                indptr=_column(list(accumulate(map(len, rows), initial=0))),
                block_ids=_column([block for row in rows for block in row]),
            )
            for rows in groups
        )


def _column(values: list[int]) -> Int32Column:
    return np.array(values, dtype=np.int32)
