"""What no plugin may break: checked on every step, cheaply, with array operations.

A breach is a ContractViolation that names the plugin; the engine stops before wrong state can
reach a request. Core process.
"""

from __future__ import annotations

from concurrent.futures import Future
from typing import NoReturn

import numpy as np

from framework.core.pooling import vector_length
from framework.core.request_table import RequestTable
from framework.core.step_rows import StepRows
from hookspecs.contracts.kv_cache import KVCacheManager
from hookspecs.contracts.model import ModelInfo
from hookspecs.errors import ContractViolation, InternalError
from hookspecs.types.columns import BoolColumn, Int32Column
from hookspecs.types.step import LogprobColumns, ModelRunnerOutput, SchedulerOutput

__all__ = ["check_cache", "check_future", "check_idle", "check_result", "check_schedule"]


def check_schedule(
    scheduled: SchedulerOutput, table: RequestTable, kv_cache: KVCacheManager, budget: int
) -> None:
    """Every row runs, none twice, the budget is kept, and counts agree with the table's."""
    if not isinstance(scheduled, SchedulerOutput):
        raise ContractViolation(
            f"schedule returned {type(scheduled).__name__}; it must return a SchedulerOutput"
        )
    slots, counts = scheduled.slots, scheduled.num_scheduled_tokens
    rows = len(slots)
    if not rows == len(counts) == len(scheduled.num_computed_tokens) == len(scheduled.samples):
        columns = (counts, scheduled.num_computed_tokens, scheduled.samples)
        raise ContractViolation(
            f"schedule returned columns of lengths {[rows, *map(len, columns)]}; all must agree"
        )
    starts = bool(scheduled.new_requests) or (table.eventful and table.any_started)
    same = table.find_rows(slots)
    decodes = not starts and same is not None and _decodes(scheduled, same, table, kv_cache)
    total = rows if decodes else int(counts.sum())
    if total != scheduled.total_num_scheduled_tokens or total > budget:
        raise ContractViolation(
            f"schedule gave out {total} tokens and says "
            f"{scheduled.total_num_scheduled_tokens}; the budget is {budget}"
        )
    if starts:
        _check_told(scheduled, table)
    if not rows:
        return
    if same is None:
        _check_slots(slots, table)
        same = table.keep_rows(slots)
    if starts:
        _check_given(scheduled, table)
    for blocks in scheduled.new_blocks:
        _check_new_blocks(blocks.slots.tolist(), scheduled, same)
    if decodes:
        return
    index = same.index
    computed, wanted = table.num_computed_tokens[index], table.num_tokens[index]
    reach = computed + counts
    right = (
        (scheduled.num_computed_tokens == computed)
        & (reach > computed)
        & (reach <= np.minimum(wanted, kv_cache.capacity[index]))
        & (scheduled.samples == (reach == wanted))
    )
    if np.count_nonzero(right) != rows:
        _refuse_counts(scheduled, computed, wanted, kv_cache.capacity[index])


def _decodes(
    scheduled: SchedulerOutput, rows: StepRows, table: RequestTable, kv_cache: KVCacheManager
) -> bool:
    """Whether each of the rows lacks one token, gets it, samples, and has room for it: so it is
    in most steps, and then there is one right decision. False says nothing."""
    computed, wanted = table.num_computed_tokens[rows.index], table.num_tokens[rows.index]
    one_each = rows.ones.tobytes()
    return (
        scheduled.num_scheduled_tokens.tobytes() == one_each
        and (wanted - computed).tobytes() == one_each
        and scheduled.num_computed_tokens.tobytes() == computed.tobytes()
        and scheduled.samples.tobytes() == rows.all_true
        and not np.count_nonzero(wanted > kv_cache.capacity[rows.index])
    )


def _check_told(scheduled: SchedulerOutput, table: RequestTable) -> None:
    """Workers are told of exactly the requests that started."""
    started = {request.slot: request.request_id for request in table.started}
    told = {new.slot: new.request_id for new in scheduled.new_requests}
    if started != told:
        raise ContractViolation(
            f"schedule started {started} (slot to request), but new_requests tells of {told}"
        )
    if started and not len(scheduled.slots):
        raise ContractViolation(f"schedule started {started}, but gives them no tokens")


def _check_given(scheduled: SchedulerOutput, table: RequestTable) -> None:
    """Requests that started have rows."""
    started, slots = {request.slot for request in table.started}, scheduled.slots.tolist()
    if not started <= set(slots):
        raise ContractViolation(
            f"schedule started slots {sorted(started)}, but gives tokens to {sorted(slots)}"
        )


def _check_slots(slots: Int32Column, table: RequestTable) -> None:
    """A request runs in each, and none is named twice."""
    if slots.min() < 0 or slots.max() >= len(table.running) or not table.running[slots].all():
        raise ContractViolation(
            f"schedule named slots in which no request runs: {_where(slots, _idle(slots, table))}"
        )
    if np.bincount(slots, minlength=1).max() > 1:
        raise ContractViolation(f"schedule named a slot twice: {sorted(slots.tolist())}")


def _check_new_blocks(slots: list[int], scheduled: SchedulerOutput, rows: StepRows) -> None:
    """Only rows that ran before get blocks appended."""
    told = {new.slot for new in scheduled.new_requests}
    if not rows.slot_set.issuperset(slots) or not told.isdisjoint(slots):
        raise ContractViolation(
            f"schedule appends blocks to slots {slots}, which must be "
            "scheduled rows that did not start in this step"
        )


def _refuse_counts(
    scheduled: SchedulerOutput, computed: Int32Column, wanted: Int32Column, capacity: Int32Column
) -> NoReturn:
    """Say what is wrong with the counts of a decision; `computed`, `wanted` and `capacity`: int32
    [rows], tokens of each row's request."""
    slots, counts = scheduled.slots, scheduled.num_scheduled_tokens
    reach = computed + counts
    wrong = scheduled.num_computed_tokens != computed
    if wrong.any():
        raise ContractViolation(
            "schedule reports other computed tokens than the request table for slots "
            f"{_where(slots, wrong)}"
        )
    wrong = (counts < 1) | (reach > wanted)
    if wrong.any():
        raise ContractViolation(
            f"schedule gave a request no token, or more than it has: slots {_where(slots, wrong)}"
        )
    wrong = scheduled.samples != (reach == wanted)
    if wrong.any():
        raise ContractViolation(
            "schedule must sample exactly for rows that reach their last token; wrong for slots "
            f"{_where(slots, wrong)}"
        )
    raise ContractViolation(
        "schedule gave tokens to requests whose blocks can not hold them: slots "
        f"{_where(slots, reach > capacity)}"
    )


def check_future(phase: str, launched: object) -> None:
    """A phase that runs on workers gives a future."""
    if not isinstance(launched, Future):
        raise ContractViolation(
            f"{phase} returned {type(launched).__name__}; it must return a "
            "concurrent.futures.Future"
        )


def check_result(
    scheduled: SchedulerOutput, result: ModelRunnerOutput, table: RequestTable, info: ModelInfo
) -> None:
    """One token, or for a pooling request one vector, for each row that samples and did not
    fail; none for the others."""
    if not isinstance(result, ModelRunnerOutput):
        raise ContractViolation(
            f"sample_tokens gave {type(result).__name__}; it must give a ModelRunnerOutput"
        )
    rows = table.step_rows
    if result.failures or result.prompt_logprobs or result.pooled:
        strangers = {*result.failures, *result.prompt_logprobs, *result.pooled} - rows.slot_set
        if strangers:
            raise ContractViolation(
                "sample_tokens tells of failures, prompt logprobs or vectors of slots "
                f"{sorted(strangers)}, which are not in the step"
            )
    expected = scheduled.samples
    if rows.pooling is not None:
        expected = expected & ~rows.pooling
    if result.failures:
        expected = expected & ~np.isin(rows.slots, list(result.failures))
    total = np.count_nonzero(expected)
    num_sampled = result.num_sampled
    if len(num_sampled) != rows.count or np.count_nonzero(num_sampled == expected) != rows.count:
        raise ContractViolation(
            f"sample_tokens gave {num_sampled.tolist()} tokens for the rows of a step "
            f"that samples {expected.astype(np.int32).tolist()}"
        )
    if result.pooled or rows.pooling is not None:
        due = (
            set()
            if rows.pooling is None
            else set(rows.slots[scheduled.samples & rows.pooling].tolist())
        )
        _check_pooled(result, due - result.failures.keys(), table, info.hidden_size)
    tokens = result.token_ids
    if len(tokens) != total:
        raise ContractViolation(
            f"sample_tokens gave {len(tokens)} token ids for {total} sampling rows"
        )
    vocab_size = info.vocab_size
    if total and not (
        tokens.item(tokens.argmin()) >= 0 and tokens.item(tokens.argmax()) < vocab_size
    ):
        raise ContractViolation(
            f"sample_tokens gave a token id outside of [0, {vocab_size}): "
            f"{[int(t) for t in tokens if not 0 <= t < vocab_size]}"
        )

    if result.logprobs is not None:
        _check_logprobs(result, result.logprobs)
    if result.side_channel and not isinstance(result.side_channel, dict):
        raise ContractViolation(
            f"sample_tokens gave a {type(result.side_channel).__name__} as side_channel, no dict"
        )


def _check_pooled(
    result: ModelRunnerOutput, due: set[int], table: RequestTable, hidden_size: int
) -> None:
    """A vector for the slots of `due` and no others, each as its request wants it."""
    if result.pooled.keys() != due:
        raise ContractViolation(
            f"sample_tokens gave vectors for slots {sorted(result.pooled)}; pooling requests "
            f"that reach the end of their prompt and did not fail are in {sorted(due)}"
        )
    for slot, vector in result.pooled.items():
        if not isinstance(vector, np.ndarray) or vector.dtype != np.float32 or vector.ndim != 1:
            raise ContractViolation(
                f"sample_tokens gave slot {slot} a vector that is no float32 array of one "
                f"dimension: {_shape_of(vector)}"
            )
        params = table.at(slot).wire.pooling
        length = 0 if params is None else vector_length(params, hidden_size)
        if not (len(vector) == length if length else len(vector)):
            raise ContractViolation(
                f"sample_tokens gave slot {slot} a vector of {len(vector)} elements; its request "
                f"wants {length or 'at least one'}"
            )
        if not np.isfinite(vector).all():
            raise ContractViolation(
                f"sample_tokens gave slot {slot} a vector that is not finite; such a row must be "
                "a failure"
            )


def _shape_of(value: object) -> str:
    if not isinstance(value, np.ndarray):
        return type(value).__name__
    return f"{value.dtype} of shape {list(value.shape)}"


def _check_logprobs(result: ModelRunnerOutput, columns: LogprobColumns) -> None:
    """Positions belong to sampled rows in order, and begin with the token that was sampled."""
    rows = result.logprob_rows
    entries = int(columns.counts.sum())
    lengths = [len(columns.token_ids), len(columns.logprobs), len(columns.ranks)]
    if rows is None or len(rows) != len(columns.counts) or lengths != [entries] * 3:
        raise ContractViolation(
            f"sample_tokens gave logprobs of {len(columns.counts)} positions and {entries} "
            f"entries, with columns of {lengths} and "
            f"{'no rows' if rows is None else f'{len(rows)} rows'}"
        )
    sampled = np.flatnonzero(result.num_sampled)
    if (np.diff(rows) <= 0).any() or not np.isin(rows, sampled).all():
        raise ContractViolation(
            f"sample_tokens gave logprobs for rows {rows.tolist()}; they must be ascending rows "
            f"among those that sampled: {sampled.tolist()}"
        )
    if (columns.counts < 1).any():
        raise ContractViolation("sample_tokens gave a sampled token no logprob")
    chosen = columns.token_ids[np.cumsum(columns.counts) - columns.counts]
    tokens = result.token_ids[np.searchsorted(sampled, rows)]
    if (chosen != tokens).any():
        raise ContractViolation(
            f"sample_tokens gave logprobs that begin with {chosen.tolist()} for the tokens "
            f"{tokens.tolist()}"
        )


def check_cache(kv_cache: KVCacheManager) -> None:
    """The cache's accounts add up (complete check: its cost grows with the cache)."""
    kv_cache.check()


def check_idle(kv_cache: KVCacheManager, table: RequestTable) -> None:
    """Nothing runs: no slot and no block may be in use."""
    if table.num_running:
        raise InternalError(f"the engine is idle but {table.num_running} slots are in use")
    if kv_cache.blocks_in_use():
        raise ContractViolation(
            f"the engine is idle but the KV cache counts {kv_cache.blocks_in_use()} blocks in use"
        )


def _idle(slots: Int32Column, table: RequestTable) -> BoolColumn:
    known = (slots >= 0) & (slots < len(table.running))
    result: BoolColumn = ~known
    result[known] = ~table.running[slots[known]]
    return result


def _where(slots: Int32Column, mask: BoolColumn) -> list[int]:
    found: list[int] = slots[mask].tolist()
    return found
