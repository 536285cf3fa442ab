"""Bundles a step's news into one `EngineCoreOutputs` a front end, in columns.

Core process, main thread.
"""

from __future__ import annotations

from typing import NamedTuple, TypeVar

import msgspec
import numpy as np

from framework.core.request import Request
from hookspecs.types.columns import Float32Column, Int8Column, Int32Column, Int64Column
from hookspecs.types.outputs import EngineCoreOutputs, PrefillInfo
from hookspecs.types.request import FinishReason
from hookspecs.types.step import LogprobColumns

__all__ = ["OutputBuilder", "SampledRows"]

V = TypeVar("V")


class SampledRows(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The rows of a step that got a token, before requests that stop are ended."""

    client: int | None
    """The front end of all rows; None if there are several."""
    handles: Int64Column
    clients: Int32Column
    num_tokens: Int32Column
    tokens: Int32Column
    codes: Int8Column
    stop_reasons: dict[int, int]
    firsts: dict[int, Request]
    """Row to a request whose first token this is."""
    preemptions: dict[int, int]
    logprobs: LogprobColumns | None
    logprob_rows: Int32Column | None


class _Ended(NamedTuple):
    handle: int
    client: int
    reason: FinishReason
    error: str | None
    refused: bool
    num_preemptions: int
    prefill: PrefillInfo | None
    pooled: Float32Column | None


class OutputBuilder:
    """Gathers between two builds: sampled rows, and requests that ended without a token."""

    def __init__(self, engine_index: int) -> None:
        self._engine_index = engine_index
        self._sampled: SampledRows | None = None
        self._ended: list[_Ended] = []

    @property
    def has_news(self) -> bool:
        """Whether `build` would return anything."""
        return bool(self._ended) or self._sampled is not None

    def add_sampled(self, rows: SampledRows) -> None:
        """The rows of the step; once between two builds."""
        self._sampled = rows

    def add_ended(self, request: Request, *, refused: bool = False) -> None:
        """A request that ended without a token in this step: by itself with its vector, or
        because it failed or was given up; `refused`: or because none are taken now."""
        if request.finish_reason is None:
            raise ValueError(f"request {request.request_id!r} has not ended")
        self._ended.append(
            _Ended(
                request.wire.handle,
                request.wire.client_index,
                request.finish_reason,
                request.error,
                refused,
                request.num_preemptions,
                None if request.pooled is None else _prefill_info(request),
                request.pooled,
            )
        )

    def build(self, now: float) -> dict[int, EngineCoreOutputs]:
        """Client index to its outputs; forgets what was gathered."""
        sampled, self._sampled = self._sampled, None
        if sampled is not None and sampled.client is not None and not self._ended:
            return {sampled.client: self._bundle(sampled.client, sampled, [], now)}
        ended, self._ended = self._ended, []
        clients = {row.client for row in ended}
        if sampled is not None:
            clients.update(np.unique(sampled.clients).tolist())
        if len(clients) == 1:
            (client,) = clients
            return {client: self._bundle(client, sampled, ended, now)}
        return {
            client: self._bundle(
                client,
                None if sampled is None else _select(sampled, client),
                [row for row in ended if row.client == client],
                now,
            )
            for client in sorted(clients)
        }

    def without_rows(self, client: int, now: float) -> EngineCoreOutputs:
        """A bundle that tells of no request."""
        return self._bundle(client, None, [], now)

    def _bundle(
        self, client: int, sampled: SampledRows | None, ended: list[_Ended], now: float
    ) -> EngineCoreOutputs:
        if sampled is None:
            outputs = EngineCoreOutputs(
                handles=np.empty(0, np.int64),
                num_tokens=np.empty(0, np.int32),
                token_ids=np.empty(0, np.int32),
                finish_codes=np.empty(0, np.int8),
                timestamp=now,
            )
        else:
            outputs = EngineCoreOutputs(
                handles=sampled.handles,
                num_tokens=sampled.num_tokens,
                token_ids=sampled.tokens,
                finish_codes=sampled.codes,
                timestamp=now,
                stop_reasons=sampled.stop_reasons,
                logprobs=sampled.logprobs,
                logprob_rows=sampled.logprob_rows,
                num_preemptions=sampled.preemptions,
            )
            for row, request in sampled.firsts.items():
                outputs.prefills[row] = _prefill_info(request)
                if request.prompt_logprobs:
                    outputs.prompt_logprobs[row] = request.prompt_logprobs
        outputs.engine_index = self._engine_index
        outputs.client_index = client
        if ended:
            _append_ended(outputs, ended)
        return outputs


def _prefill_info(request: Request) -> PrefillInfo:
    return PrefillInfo(
        num_prompt_tokens=request.num_prompt_tokens,
        num_cached_tokens=request.num_cached_tokens,
        queued_at=request.queued_at,
        scheduled_at=request.queued_at if request.scheduled_at is None else request.scheduled_at,
    )


def _append_ended(outputs: EngineCoreOutputs, ended: list[_Ended]) -> None:
    base = len(outputs.handles)
    count = len(ended)
    outputs.handles = np.concatenate(
        [outputs.handles, np.fromiter((row.handle for row in ended), np.int64, count)]
    )
    outputs.num_tokens = np.concatenate([outputs.num_tokens, np.zeros(count, np.int32)])
    outputs.finish_codes = np.concatenate(
        [outputs.finish_codes, np.fromiter((row.reason for row in ended), np.int8, count)]
    )
    for row, request in enumerate(ended, base):
        if request.error is not None:
            outputs.errors[row] = request.error
        if request.refused:
            outputs.refused.append(row)
        if request.num_preemptions:
            outputs.num_preemptions[row] = request.num_preemptions
        if request.prefill is not None:
            outputs.prefills[row] = request.prefill
        if request.pooled is not None:
            outputs.pooled[row] = request.pooled


def _select(rows: SampledRows, client: int) -> SampledRows | None:
    """The rows of one front end."""
    mask = rows.clients == client
    if not mask.any():
        return None
    new_row = np.cumsum(mask, dtype=np.int32) - 1

    def renumber(facts: dict[int, V]) -> dict[int, V]:
        return {int(new_row[row]): value for row, value in facts.items() if mask[row]}

    logprobs, logprob_rows = rows.logprobs, rows.logprob_rows
    if logprobs is not None and logprob_rows is not None:
        positions = mask[logprob_rows]
        entries = np.repeat(positions, logprobs.counts)
        logprobs = msgspec.structs.replace(
            logprobs,
            counts=logprobs.counts[positions],
            token_ids=logprobs.token_ids[entries],
            logprobs=logprobs.logprobs[entries],
            ranks=logprobs.ranks[entries],
        )
        logprob_rows = new_row[logprob_rows[positions]]
    return SampledRows(
        client=client,
        num_tokens=rows.num_tokens[mask],
        handles=rows.handles[mask],
        clients=rows.clients[mask],
        tokens=rows.tokens[mask],
        codes=rows.codes[mask],
        stop_reasons=renumber(rows.stop_reasons),
        firsts=renumber(rows.firsts),
        preemptions=renumber(rows.preemptions),
        logprobs=logprobs,
        logprob_rows=logprob_rows,
    )
