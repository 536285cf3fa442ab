"""What crosses the boundary between core and workers every step, in columns.

A running request owns a *slot* (a small integer below `max_num_seqs`) from its start to its
finish or preemption. A step's *rows* are the scheduled requests, in schedule order; a column
has one element a row unless it says otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from hookspecs.types.columns import BoolColumn, Float32Column, Int32Column
from hookspecs.types.pooling import PoolingParams
from hookspecs.types.request import AdapterRef
from hookspecs.types.sampling import SamplingParams

__all__ = [
    "BlockColumns",
    "GrammarOutput",
    "LogprobColumns",
    "ModelRunnerOutput",
    "NewRequest",
    "RowFailure",
    "SampledRow",
    "ScheduledRow",
    "SchedulerOutput",
]


class NewRequest(msgspec.Struct, kw_only=True):
    """A request that starts (or resumes after preemption) in this step."""

    request_id: str
    slot: int
    token_ids: list[int]
    """All tokens so far: the prompt, and what was sampled before a preemption."""
    num_prompt_tokens: int
    num_computed_tokens: int
    """Tokens whose KV is already in `block_ids` (a prefix hit)."""
    block_ids: tuple[list[int], ...]
    """Block table, one list a KV cache group."""
    sampling_params: SamplingParams
    eos_token_id: int | None = None
    """With sampling_params.stop_token_ids: masked before min_tokens."""
    prompt_embeds: Any = None
    """float array [num_prompt_tokens, hidden size], or None."""
    adapter: AdapterRef | None = None
    pooling: PoolingParams | None = None
    """If given, the row that reaches the last prompt token gives a vector, not a token."""


class BlockColumns(msgspec.Struct):
    """Blocks appended to block tables of one KV cache group, in compressed row form."""

    slots: Int32Column
    """int32[k]: the slots that got blocks."""
    indptr: Int32Column
    """int32[k + 1]: blocks of slots[i] are block_ids[indptr[i]:indptr[i + 1]]."""
    block_ids: Int32Column


class ScheduledRow(NamedTuple):
    """Typed view of one row of a SchedulerOutput."""

    slot: int
    num_scheduled_tokens: int
    num_computed_tokens: int
    samples: bool


class SchedulerOutput(msgspec.Struct, kw_only=True):
    """One step's decision: which running requests compute how many tokens."""

    step: int
    slots: Int32Column
    """int32[rows]: each slot at most once."""
    num_scheduled_tokens: Int32Column
    """int32[rows]: >= 1."""
    num_computed_tokens: Int32Column
    """int32[rows]: tokens computed before this step; the position of the row's first token."""
    samples: BoolColumn
    """bool[rows]: the row reaches its last known token, so a token is sampled for it."""
    total_num_scheduled_tokens: int
    new_requests: list[NewRequest] = msgspec.field(default_factory=list)
    """Requests among `slots` that start or resume in this step."""
    new_blocks: tuple[BlockColumns, ...] = ()
    """Blocks appended for rows that were running before, one a KV cache group; may be ()."""
    released_slots: list[int] = msgspec.field(default_factory=list)
    """Slots that became free since the last step; applied before `new_requests`."""
    preempted_request_ids: list[str] = msgspec.field(default_factory=list)
    """Requests preempted since the last step; filled in by the kernel."""
    draft_indptr: Int32Column | None = None
    """int32[rows + 1] into draft_token_ids; None without speculation."""
    draft_token_ids: Int32Column | None = None
    side_channel: dict[str, bytes] = msgspec.field(default_factory=dict)
    """Name of a side channel, as selected, to the message of its core half for its worker half,
    msgpack; filled in by the kernel."""

    @property
    def num_rows(self) -> int:
        """Number of scheduled requests."""
        return len(self.slots)

    def rows(self) -> Iterator[ScheduledRow]:
        """The rows one by one: convenient, not for the hot path."""
        return map(
            ScheduledRow,
            self.slots.tolist(),
            self.num_scheduled_tokens.tolist(),
            self.num_computed_tokens.tolist(),
            self.samples.tolist(),
        )


class GrammarOutput(msgspec.Struct):
    """Token bitmask for rows under a grammar."""

    slots: Int32Column
    bitmask: Int32Column
    """int32[len(slots) * words], row-major; bit i of a row allows token i."""


class LogprobColumns(msgspec.Struct):
    """Log-probabilities of positions: of each, the chosen token first, then the most likely.

    The chosen token appears again among the most likely when it is one of them.
    """

    counts: Int32Column
    """int32[positions]: entries of each position; 0 for a prompt's first token."""
    token_ids: Int32Column
    """int32[sum of counts]"""
    logprobs: Float32Column
    """float32[sum of counts]: of the raw logits, finite."""
    ranks: Int32Column
    """int32[sum of counts]: 1 is the most likely token."""


class RowFailure(msgspec.Struct, frozen=True):
    """A row whose request must end with an error."""

    message: str
    plugin: str | None = None
    poisoned: bool = True
    """Its KV may be wrong: blocks it wrote are not kept for others."""
    hook: str | None = None
    """The provider hook by which `plugin` offers what failed: it is counted there, and observers
    are told (`on_plugin_failed`). None: no fault of a plugin, e.g. a request that one refuses on
    purpose."""


class SampledRow(NamedTuple):
    """Typed view of one row of a ModelRunnerOutput."""

    row: int
    token_ids: list[int]


class ModelRunnerOutput(msgspec.Struct, kw_only=True):
    """What a step produced; rows as in the SchedulerOutput that caused it."""

    num_sampled: Int32Column
    """int32[rows]: 0 for a partial prefill, 1 without speculation."""
    token_ids: Int32Column
    """int32[sum of num_sampled]"""
    logprobs: LogprobColumns | None = None
    """Positions of the rows in `logprob_rows`, in order."""
    logprob_rows: Int32Column | None = None
    """int32[positions]: the row each position of `logprobs` belongs to."""
    prompt_logprobs: dict[int, LogprobColumns] = msgspec.field(default_factory=dict)
    """Slot to the prompt positions that this step computed."""
    pooled: dict[int, Float32Column] = msgspec.field(default_factory=dict)
    """Slot to the vector of its prompt, float32[hidden size or dimensions]; such a row samples
    nothing, and its request ends."""
    failures: dict[int, RowFailure] = msgspec.field(default_factory=dict)
    """Slot to its failure; such a row samples nothing."""
    side_channel: dict[str, bytes] = msgspec.field(default_factory=dict)
    """The same from the worker half to the core half; filled in by the kernel."""

    def rows(self) -> Iterator[SampledRow]:
        """The rows one by one: convenient, not for the hot path."""
        tokens, at = self.token_ids.tolist(), 0
        for row, count in enumerate(self.num_sampled.tolist()):
            yield SampledRow(row, tokens[at : at + count])
            at += count
