"""What a run measured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import groupby, pairwise
from typing import Any

import msgspec

from framework.bench.record import RequestError, RequestRecord
from framework.bench.statistics import Distribution, distribution

__all__ = ["ErrorCount", "LoadReport", "Measured", "build_report"]


class ErrorCount(msgspec.Struct, frozen=True, kw_only=True):
    """Errors that are equal."""

    count: int
    kind: str
    status: int | None
    message: str


class LoadReport(msgspec.Struct, frozen=True, kw_only=True):
    """Latencies are in milliseconds, of completed requests; None where there is nothing to
    measure."""

    settings: dict[str, Any]
    interrupted: bool
    wall_s: float
    """From the start to the last answer, or to the interruption."""
    sent: int
    completed: int
    failed: int
    unfinished: int
    """Without an answer when the run was interrupted."""
    requests_per_s: float
    """Completed requests by `wall_s`; the same for tokens."""
    output_tokens_per_s: float
    total_tokens_per_s: float
    """Prompts and outputs."""
    prompt_tokens: int
    output_tokens: int
    without_usage: int
    """Completed requests for which the server gave no usage: their chunks count as tokens, and
    their prompts as nothing."""
    tokens_per_chunk: float | None
    """Of streams. Above 1 the server, or the network, put tokens together."""
    ttft_ms: Distribution | None
    """Time to first token: to the first chunk with tokens. Streams only."""
    itl_ms: Distribution | None
    """Inter-token latency, a value for each token but those that came first: tokens that come
    together, in a chunk or in chunks that are read at once, share the time since those before.
    Where chunks do not say how many they have, a request's tokens are spread evenly over its
    chunks."""
    e2e_ms: Distribution | None
    """To the end of the answer."""
    delay_ms: Distribution | None
    """From the scheduled arrival to the sending: the wait for `max_concurrency`, and what the
    generator was late. Open loop only."""
    generator_cpu_s: float
    """CPU time of the process that generated the load."""
    generator_cpu_share: float
    """By wall time. It has one thread: near 1 it is what limits the load, and latencies include
    its own delay."""
    errors: list[ErrorCount]


class Measured(msgspec.Struct, kw_only=True):
    """A run as it was."""

    records: list[RequestRecord]
    wall_s: float
    cpu_s: float
    open_loop: bool
    interrupted: bool


def build_report(run: Measured, settings: dict[str, Any]) -> LoadReport:
    """Sums, rates and distributions."""
    done = [record for record in run.records if record.completed]
    failed = [record.error for record in run.records if record.error is not None]
    prompt_tokens = sum(record.prompt_tokens or 0 for record in done)
    output_tokens = sum(_output_tokens(record) for record in done)
    streamed = [record for record in done if record.chunk_times]
    chunks = sum(len(record.chunk_times) for record in streamed)
    first = [_ms(record.chunk_times[0] - record.scheduled) for record in streamed]
    ends = [_ms(record.ended - record.scheduled) for record in done if record.ended is not None]
    delays = [_ms(record.sent - record.scheduled) for record in done if record.sent is not None]
    wall_s = max(run.wall_s, 1e-9)
    return LoadReport(
        settings=settings,
        interrupted=run.interrupted,
        wall_s=run.wall_s,
        sent=len(run.records),
        completed=len(done),
        failed=len(failed),
        unfinished=len(run.records) - len(done) - len(failed),
        requests_per_s=len(done) / wall_s,
        output_tokens_per_s=output_tokens / wall_s,
        total_tokens_per_s=(prompt_tokens + output_tokens) / wall_s,
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
        without_usage=sum(record.output_tokens is None for record in done),
        tokens_per_chunk=sum(map(_output_tokens, streamed)) / chunks if chunks else None,
        ttft_ms=distribution(first),
        itl_ms=_inter_token(streamed),
        e2e_ms=distribution(ends),
        delay_ms=distribution(delays) if run.open_loop else None,
        generator_cpu_s=run.cpu_s,
        generator_cpu_share=run.cpu_s / wall_s,
        errors=_counted(failed),
    )


def _inter_token(streamed: Sequence[RequestRecord]) -> Distribution | None:
    gaps: list[float] = []
    tokens: list[float] = []
    for record in streamed:
        times = record.chunk_times
        exact = len(record.chunk_tokens) == len(times)
        mean = max(_output_tokens(record), 1) / len(times)
        arrivals = [
            (time, sum(record.chunk_tokens[at] if exact else mean for at in together))
            for time, together in groupby(range(len(times)), times.__getitem__)
        ]
        for (before, _), (time, count) in pairwise(arrivals):
            gaps.append(_ms(time - before) / count)
            tokens.append(count)
    return distribution(gaps, tokens)


def _output_tokens(record: RequestRecord) -> int:
    return len(record.chunk_times) if record.output_tokens is None else record.output_tokens


def _counted(errors: Sequence[RequestError]) -> list[ErrorCount]:
    return [
        ErrorCount(count=count, kind=error.kind, status=error.status, message=error.message)
        for error, count in Counter(errors).most_common()
    ]


def _ms(seconds: float) -> float:
    return seconds * 1e3
