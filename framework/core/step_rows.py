"""`StepRows`: what is the same of a step's rows for as long as the same requests run in the same
slots. Most steps after a step have the rows of that one. Core process, main thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from hookspecs.types.columns import BoolColumn, Int8Column, Int32Column, Int64Column
from hookspecs.types.outputs import NOT_FINISHED

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from framework.core.request_table import RequestTable

__all__ = ["StepRows"]

Column = TypeVar("Column", bound="NDArray[Any]")


class StepRows:
    """Facts of rows, gathered once from the request table's columns. They are copies: what a
    plugin does to the columns of a decision after it was checked does not reach them. Shared
    between steps, so nobody may write to them, and numpy refuses it.
    """

    __slots__ = (
        "_slot_set",
        "all_true",
        "client",
        "clients",
        "count",
        "eos_token_ids",
        "expects_first",
        "going_on",
        "handles",
        "index",
        "max_total_tokens",
        "ones",
        "output_token_ids",
        "pooling",
        "slots",
        "stop_token_ids",
    )

    def __init__(self, table: RequestTable, slots: Int32Column) -> None:
        """`slots`: distinct ones in which requests run."""
        index: NDArray[np.intp] = slots.astype(np.intp)
        self.count = len(index)
        self.index = index
        """intp[rows]: the slots; to index by it costs a fifth of what an int32 column costs."""
        self.slots: Int32Column = _fixed(index.astype(np.int32))
        self.handles: Int64Column = _fixed(table.handles[index])
        self.clients: Int32Column = _fixed(table.clients[index])
        first = int(self.clients[0]) if self.count else 0
        self.client: int | None = None if np.count_nonzero(self.clients - first) else first
        """The front end of all rows; None if there are several."""
        self.eos_token_ids: Int32Column = table.eos_token_id[index]
        self.max_total_tokens: Int32Column = table.max_total_tokens[index]
        self.stop_token_ids = {
            row: table.at(int(index[row])).stop_token_ids
            for row in table.has_stop_tokens[index].nonzero()[0].tolist()
        }
        """Of the rows that have any."""
        pooling: BoolColumn = table.pooling[index]
        self.pooling = pooling if np.count_nonzero(pooling) else None
        """bool[rows]: gives a vector, no tokens; None: none does."""
        self._slot_set: frozenset[int] | None = None
        self.expects_first = bool(np.count_nonzero(table.first_output[index]))
        """Whether a token to come may be the first that the user of a row gets."""
        outputs = table.output_token_ids
        self.output_token_ids = [outputs[slot] for slot in index.tolist()]
        """The output tokens of each row's request."""
        self.ones: Int32Column = _fixed(np.ones(self.count, np.int32))
        self.all_true = b"\1" * self.count
        """The bytes of a bool column that is true everywhere."""
        self.going_on: Int8Column = _fixed(np.full(self.count, NOT_FINISHED, np.int8))
        """Finish codes of a step that ends none of them."""

    @property
    def slot_set(self) -> frozenset[int]:
        """The slots, to look for some of them."""
        if self._slot_set is None:  # most rows are asked for none
            self._slot_set = frozenset(self.index.tolist())
        return self._slot_set

    def are(self, slots: Int32Column) -> bool:
        """Whether `slots` names the same slots in the same order."""
        own = self.slots
        return (
            slots.dtype == own.dtype
            and slots.shape == own.shape
            and slots.tobytes() == own.tobytes()
        )


def _fixed(column: Column) -> Column:
    column.flags.writeable = False
    return column
