"""The decision of one step while it is being made, in columns."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, chain
from typing import TYPE_CHECKING

import numpy as np

from builtin_plugins.scheduler_continuous.running import RunningRequest
from hookspecs.contracts.request_view import RequestTable, RequestView
from hookspecs.types.columns import Int32Column
from hookspecs.types.step import BlockColumns, NewRequest, SchedulerOutput

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["StepPlan"]


class StepPlan:
    """Rows of requests that ran before, then those that start; one element a row.

    A row with no scheduled tokens is left out of the output. So a row is taken back by
    setting its tokens to 0, whatever was decided for it before.
    """

    def __init__(
        self,
        rows: list[RunningRequest],
        slots: Int32Column,
        index: NDArray[np.intp],
        table: RequestTable,
    ) -> None:
        """`index`: the slots, to index columns by."""
        self.rows = rows
        self.slots = slots
        self._index = index
        self.num_tokens: Int32Column = table.num_tokens[index]
        self.computed: Int32Column = table.num_computed_tokens[index]
        self.scheduled: Int32Column = self.num_tokens - self.computed
        self.left = 0
        """Tokens that the step may still take."""
        self.prompt_room = 0
        """Tokens of prompts that may still stand beside those that decode, whatever `left` is."""
        self._one_each = True
        """Whether no row wants more than a token."""
        self.preempted: set[str] = set()
        """Ids of requests preempted by this step."""
        self._total = 0
        """Tokens given out."""
        self._row_of: dict[RunningRequest, int] = {}
        self._new_blocks: dict[int, tuple[list[int], ...]] = {}
        self._started: list[NewRequest] = []
        self._started_tokens: list[int] = []
        self._started_known: list[int] = []

    def share(self, budget: int, most_per_row: int, most_beside: int | None) -> bool:
        """Hand out `budget` tokens in row order, at most `most_per_row` to each, and while rows
        decode at most `most_beside` tokens of prompts, or as many as decode, if these are more.
        Returns whether they sufficed."""
        scheduled, rows = self.scheduled, len(self.scheduled)
        wanted = int(np.add.reduce(scheduled))
        if wanted > most_per_row:  # else no row can want more
            scheduled = np.minimum(scheduled, np.int32(most_per_row))
            wanted = int(scheduled.sum())
        self._one_each = wanted <= rows
        room, enough = budget, True
        if most_beside is not None and rows:
            prompts = None if self._one_each else scheduled > 1
            decodes = rows if prompts is None else rows - int(np.count_nonzero(prompts))
            if decodes:
                # The step's budget is for those that decode first, but for one token: prompts
                # go on whatever there is.
                room = min(max(most_beside, decodes), max(1, budget - decodes))
                if prompts is not None and wanted - decodes > room:
                    scheduled = np.where(
                        prompts, _first(np.where(prompts, scheduled, 0), room), scheduled
                    )
                    wanted, enough = decodes + room, False
                room -= wanted - decodes
        if wanted > budget:
            scheduled, enough = _first(scheduled, budget), False
        self.scheduled = scheduled
        self._total = min(wanted, budget)
        self.left, self.prompt_room = budget - self._total, room
        return enough

    @property
    def budget(self) -> int:
        """Tokens of prompts that may still be added."""
        return min(self.prompt_room, self.left)

    def prompts(self) -> list[tuple[RequestView, int]]:
        """Requests that go on with their prompt, each with its computed tokens."""
        if self._one_each:
            return []
        rows = (self.scheduled > 1).nonzero()[0].tolist()
        return [(self.rows[row].request, int(self.computed[row])) for row in rows]

    def outgrown(self, capacity: Int32Column) -> Sequence[tuple[int, int]]:
        """Rows whose tokens do not fit into the blocks they hold, in order, each with the tokens
        that are computed after this step."""
        ends = self.computed + self.scheduled
        grown = (ends > capacity[self._index]).nonzero()[0]
        if not len(grown):
            return ()
        return list(zip(grown.tolist(), ends[grown].tolist(), strict=True))

    def is_prompt(self, row: int) -> bool:
        """Whether what a row got is a part of its prompt."""
        return bool(self.scheduled[row] > 1)

    def row_of(self, entry: RunningRequest) -> int:
        """The row of a request that ran before."""
        if not self._row_of:  # most steps ask for none
            self._row_of = {entry: row for row, entry in enumerate(self.rows)}
        return self._row_of[entry]

    def append_blocks(self, row: int, blocks: tuple[list[int], ...]) -> None:
        """A row got blocks, one list a group."""
        self._new_blocks[row] = blocks

    def take_back(self, row: int) -> None:
        """Leave a row out of the step, and its tokens to others."""
        tokens = int(self.scheduled[row])
        self.left += tokens
        self._total -= tokens
        if self.is_prompt(row):
            self.prompt_room += tokens
        self.scheduled[row] = 0
        self._new_blocks.pop(row, None)

    def start(self, new: NewRequest, num_scheduled: int) -> None:
        """Add a row for a request that starts."""
        self._started.append(new)
        self._started_tokens.append(num_scheduled)
        self._started_known.append(len(new.token_ids))
        self.left -= num_scheduled
        self.prompt_room -= num_scheduled
        self._total += num_scheduled

    def output(self) -> SchedulerOutput:
        """The decision as the kernel wants it."""
        slots, scheduled, computed = self.slots, self.scheduled, self.computed
        num_tokens = self.num_tokens
        if np.count_nonzero(scheduled) != len(scheduled):
            kept = scheduled > 0
            slots, scheduled, computed = slots[kept], scheduled[kept], computed[kept]
            num_tokens = num_tokens[kept]
        if self._started:
            slots = _extend(slots, [new.slot for new in self._started])
            scheduled = _extend(scheduled, self._started_tokens)
            computed = _extend(computed, [new.num_computed_tokens for new in self._started])
            num_tokens = _extend(num_tokens, self._started_known)
        return SchedulerOutput(
            step=0,
            slots=slots,
            num_scheduled_tokens=scheduled,
            num_computed_tokens=computed,
            samples=computed + scheduled == num_tokens,
            total_num_scheduled_tokens=self._total,
            new_requests=self._started,
            new_blocks=self._block_columns() if self._new_blocks else (),
        )

    def _block_columns(self) -> tuple[BlockColumns, ...]:
        slots = self.slots[list(self._new_blocks)]
        columns = []
        for lists in zip(*self._new_blocks.values(), strict=True):
            indptr = np.array([0, *accumulate(map(len, lists))], dtype=np.int32)
            block_ids = np.array(list(chain.from_iterable(lists)), dtype=np.int32)
            columns.append(BlockColumns(slots=slots, indptr=indptr, block_ids=block_ids))
        return tuple(columns)


def _first(wanted: Int32Column, budget: int) -> Int32Column:
    """What each gets of `budget` tokens, first come first served."""
    before = np.cumsum(wanted) - wanted
    shares: Int32Column = np.clip(budget - before, 0, wanted).astype(np.int32)
    return shares


def _extend(column: Int32Column, values: list[int]) -> Int32Column:
    return np.concatenate((column, np.array(values, dtype=np.int32)))
