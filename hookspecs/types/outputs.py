"""Outputs: of a step for one front end (columns), and of a request for its user (objects)."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from hookspecs.types.columns import Float32Column, Int8Column, Int32Column, Int64Column
from hookspecs.types.request import FinishReason
from hookspecs.types.stats import RequestMetrics, SchedulerStats
from hookspecs.types.step import LogprobColumns

__all__ = [
    "CompletionOutput",
    "EngineCoreOutputs",
    "Logprob",
    "OutputRow",
    "PrefillInfo",
    "RequestOutput",
    "UtilityResult",
]

NOT_FINISHED = -1


class PrefillInfo(msgspec.Struct, frozen=True):
    """Told once a request, with its first token."""

    num_prompt_tokens: int
    num_cached_tokens: int
    queued_at: float
    """Seconds, monotonic clock of the engine core."""
    scheduled_at: float


class UtilityResult(msgspec.Struct, kw_only=True):
    """Answer to a command. Exactly one of result and error holds."""

    call_id: int
    result: Any = None
    error_type: str | None = None
    error: str | None = None
    param: str | None = None
    """Of an InvalidRequestError: which argument is wrong."""


class OutputRow(NamedTuple):
    """Typed view of one row of an EngineCoreOutputs."""

    row: int
    handle: int
    token_ids: list[int]
    finish_reason: FinishReason | None


class EngineCoreOutputs(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One step's outputs for one front end; a row for each request that has news."""

    handles: Int64Column
    """int64[rows]: EngineCoreRequest.handle"""
    num_tokens: Int32Column
    """int32[rows]"""
    token_ids: Int32Column
    """int32[sum of num_tokens]"""
    finish_codes: Int8Column
    """int8[rows]: FinishReason, or -1"""
    timestamp: float
    """Seconds, monotonic clock of the engine core."""
    engine_index: int = 0
    client_index: int = 0
    stop_reasons: dict[int, int] = msgspec.field(default_factory=dict)
    """Row to the stop token that ended it; absent for the model's own end token."""
    errors: dict[int, str] = msgspec.field(default_factory=dict)
    """Row to why it failed."""
    refused: list[int] = msgspec.field(default_factory=list)
    """Rows of requests that failed because the engine's state takes none; there is nothing wrong
    with them."""
    prefills: dict[int, PrefillInfo] = msgspec.field(default_factory=dict)
    """Row to facts that are told with a request's first output."""
    logprobs: LogprobColumns | None = None
    logprob_rows: Int32Column | None = None
    """int32[positions]: the row each position of `logprobs` belongs to."""
    prompt_logprobs: dict[int, list[LogprobColumns]] = msgspec.field(default_factory=dict)
    """Row to the pieces of its prompt's logprobs, in order; complete when they come."""
    pooled: dict[int, Float32Column] = msgspec.field(default_factory=dict)
    """Row to the vector of a pooling request, which ends with it."""
    num_preemptions: dict[int, int] = msgspec.field(default_factory=dict)
    """Row to how often it was preempted; for finished rows that were."""
    scheduler_stats: SchedulerStats | None = None
    finished_handles: Int64Column | None = None
    """Handles that left the engine, also those without a row here."""

    def rows(self) -> list[OutputRow]:
        """The rows as objects: convenient, not for the hot path."""
        tokens, at, out = self.token_ids.tolist(), 0, []
        columns = (self.handles.tolist(), self.num_tokens.tolist(), self.finish_codes.tolist())
        for row, (handle, count, code) in enumerate(zip(*columns, strict=True)):
            reason = None if code == NOT_FINISHED else FinishReason(code)
            out.append(OutputRow(row, handle, tokens[at : at + count], reason))
            at += count
        return out


class Logprob(msgspec.Struct, frozen=True):
    """Log-probability of one token at one position."""

    logprob: float
    rank: int
    decoded_token: str | None = None


class CompletionOutput(msgspec.Struct, kw_only=True):
    """One of the n outputs of a request.

    After a stop string, `text` ends before it (or after it, if included), `token_ids` and
    `logprobs` end with the token that completed it.
    """

    index: int
    text: str = ""
    token_ids: list[int] = msgspec.field(default_factory=list)
    cumulative_logprob: float | None = None
    logprobs: list[dict[int, Logprob]] | None = None
    finish_reason: str | None = None
    """stop, length, abort, error, timeout, or None while it runs."""
    stop_reason: int | str | None = None
    """The stop token or string; None for the model's own end token."""
    error: str | None = None

    @property
    def finished(self) -> bool:
        """Whether nothing will follow."""
        return self.finish_reason is not None


class RequestOutput(msgspec.Struct, kw_only=True):
    """What a user gets for one prompt."""

    request_id: str
    prompt: str | None
    prompt_token_ids: list[int]
    outputs: list[CompletionOutput]
    finished: bool
    prompt_logprobs: list[dict[int, Logprob] | None] | None = None
    num_cached_tokens: int = 0
    metrics: RequestMetrics | None = None
    embedding: Float32Column | None = None
    """float32[dimensions]: the vector of a pooling request that did not fail, whose only output
    has no tokens."""
