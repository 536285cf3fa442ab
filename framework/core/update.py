"""Applies what a step produced: tokens to requests, stops, failures, blocks to the cache.

Core process, main thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from framework.core.outputs import OutputBuilder, SampledRows
from framework.core.request import Request
from framework.core.request_table import RequestTable
from framework.core.step_rows import StepRows
from framework.core.stop import check_stops
from hookspecs.contracts.kv_cache import KVCacheManager
from hookspecs.types.columns import Int32Column
from hookspecs.types.outputs import NOT_FINISHED
from hookspecs.types.request import FinishReason
from hookspecs.types.step import LogprobColumns, ModelRunnerOutput

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Ending", "apply_result"]


class Ending(NamedTuple):
    """A request that this step ended."""

    request: Request
    reason: FinishReason
    error: str | None
    keep_blocks: bool
    has_row: bool
    """Whether the output already holds a row for it."""


def apply_result(
    result: ModelRunnerOutput,
    table: RequestTable,
    kv_cache: KVCacheManager,
    outputs: OutputBuilder,
    end: Callable[[Ending], None],
) -> Int32Column:
    """Apply a checked result to `table.step_rows`; returns the slots of these that still run.

    Order: failures leave the step; blocks that were written become available; tokens are
    appended; the stop chain decides; the output rows are gathered; requests that stop, and those
    that have their vector, are ended by `end`.
    """
    rows = table.step_rows
    written = rows.slots
    if result.failures:
        written = written[~np.isin(written, list(result.failures))]
    kv_cache.commit(written)
    for slot, pieces in result.prompt_logprobs.items():
        request = table.at(slot)
        if not request.emitted and slot not in result.failures:
            request.prompt_logprobs.append(_copy(pieces))

    sampled = np.nonzero(result.num_sampled)[0]
    if len(sampled) == rows.count:
        endings = _append_tokens(rows, sampled, result, table, outputs)
    elif len(sampled):
        part = StepRows(table, rows.slots[sampled])
        endings = _append_tokens(part, sampled, result, table, outputs)
    else:
        endings = []
    for slot, vector in result.pooled.items():
        request = table.at(slot)
        request.pooled = vector
        endings.append(Ending(request, FinishReason.STOP, None, True, False))
    for slot, failure in result.failures.items():
        endings.append(
            Ending(table.at(slot), FinishReason.ERROR, failure.message, not failure.poisoned, False)
        )
    for ending in endings:
        end(ending)
    return written[table.running[written]] if endings else written


def _append_tokens(
    rows: StepRows,
    sampled: NDArray[np.intp],
    result: ModelRunnerOutput,
    table: RequestTable,
    outputs: OutputBuilder,
) -> list[Ending]:
    """`rows`: those with a token; `sampled`: intp[rows], where they are among those of the step."""
    # Copies: a worker may use its arrays for the next step while these wait to be sent.
    tokens, logprobs, index = result.token_ids.copy(), result.logprobs, rows.index
    if logprobs is not None:
        logprobs = _copy(logprobs)
    num_tokens: Int32Column = table.num_tokens[index] + rows.ones
    table.num_tokens[index] = num_tokens
    for output_token_ids, token in zip(rows.output_token_ids, tokens.tolist(), strict=True):
        output_token_ids.append(token)
    codes, stop_reasons = check_stops(rows, num_tokens, tokens)

    firsts: dict[int, Request] = {}
    if rows.expects_first:
        for row in table.first_output[index].nonzero()[0].tolist():
            request = table.at(int(index[row]))
            request.emitted = True
            firsts[row] = request
        table.first_output[index] = False
        rows.expects_first = False

    endings: list[Ending] = []
    preemptions: dict[int, int] = {}
    if codes is not rows.going_on:
        for row in (codes != NOT_FINISHED).nonzero()[0].tolist():
            request = table.at(int(index[row]))
            if request.num_preemptions:
                preemptions[row] = request.num_preemptions
            endings.append(Ending(request, FinishReason(int(codes[row])), None, True, True))

    logprob_rows = result.logprob_rows
    if logprob_rows is not None:
        logprob_rows = np.searchsorted(sampled, logprob_rows).astype(np.int32)
    outputs.add_sampled(
        SampledRows(
            client=rows.client,
            handles=rows.handles,
            clients=rows.clients,
            num_tokens=rows.ones,
            tokens=tokens,
            codes=codes,
            stop_reasons=stop_reasons,
            firsts=firsts,
            preemptions=preemptions,
            logprobs=logprobs,
            logprob_rows=logprob_rows,
        )
    )
    return endings


def _copy(columns: LogprobColumns) -> LogprobColumns:
    return LogprobColumns(
        counts=columns.counts.copy(),
        token_ids=columns.token_ids.copy(),
        logprobs=columns.logprobs.copy(),
        ranks=columns.ranks.copy(),
    )
