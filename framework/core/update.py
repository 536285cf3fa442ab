"""Applies what a step produced: tokens to requests, stops, failures, blocks to the cache.

Core process, main thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from framework.core.outputs import OutputBuilder, SampledRows
from framework.core.request import Request
from framework.core.request_table import RequestTable
from framework.core.stop import check_stops
from hookspecs.contracts.kv_cache import KVCacheManager
from hookspecs.types.columns import Int32Column
from hookspecs.types.outputs import NOT_FINISHED
from hookspecs.types.request import FinishReason
from hookspecs.types.step import ModelRunnerOutput, SchedulerOutput

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
    scheduled: SchedulerOutput,
    result: ModelRunnerOutput,
    table: RequestTable,
    kv_cache: KVCacheManager,
    outputs: OutputBuilder,
    end: Callable[[Ending], None],
) -> Int32Column:
    """Apply a checked result; returns the slots of the step that still run.

    Order: failures leave the step; blocks that were written become available; tokens are
    appended; the stop chain decides; the output rows are gathered; requests that stop, and those
    that have their vector, are ended by `end`.
    """
    slots = scheduled.slots
    failed = np.isin(slots, list(result.failures)) if result.failures else None
    written = slots if failed is None else slots[~failed]
    kv_cache.commit(written)
    for slot, pieces in result.prompt_logprobs.items():
        request = table.at(slot)
        if not request.emitted and slot not in result.failures:
            request.prompt_logprobs.append(pieces)

    sampled = np.flatnonzero(result.num_sampled).astype(np.int32)
    if len(sampled):
        endings = _append_tokens(slots[sampled], sampled, result, table, outputs)
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
    slots: Int32Column,
    rows: Int32Column,
    result: ModelRunnerOutput,
    table: RequestTable,
    outputs: OutputBuilder,
) -> list[Ending]:
    tokens = result.token_ids
    table.num_tokens[slots] += 1
    requests = table.requests
    for slot, token in zip(slots.tolist(), tokens.tolist(), strict=True):
        request = requests[slot]
        if request is not None:
            request.output_token_ids.append(token)
    codes, stop_reasons = check_stops(table, slots, tokens)

    firsts: dict[int, Request] = {}
    if table.first_output[slots].any():
        for row in np.flatnonzero(table.first_output[slots]).tolist():
            request = table.at(int(slots[row]))
            request.emitted = True
            firsts[row] = request
        table.first_output[slots] = False

    endings: list[Ending] = []
    preemptions: dict[int, int] = {}
    for row in np.flatnonzero(codes != NOT_FINISHED).tolist():
        request = table.at(int(slots[row]))
        if request.num_preemptions:
            preemptions[row] = request.num_preemptions
        endings.append(Ending(request, FinishReason(int(codes[row])), None, True, True))

    logprob_rows = result.logprob_rows
    if logprob_rows is not None:
        logprob_rows = np.searchsorted(rows, logprob_rows).astype(np.int32)
    outputs.add_sampled(
        SampledRows(
            handles=table.handles[slots],
            clients=table.clients[slots],
            tokens=tokens,
            codes=codes,
            stop_reasons=stop_reasons,
            firsts=firsts,
            preemptions=preemptions,
            logprobs=result.logprobs,
            logprob_rows=logprob_rows,
        )
    )
    return endings
