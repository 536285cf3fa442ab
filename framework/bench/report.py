"""What a run measured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise
from typing import Any

import msgspec

from framework.bench.record import RequestError, RequestRecord
from framework.bench.statistics import Distribution, distribution

__all__ = [
    "ErrorCount",
    "Latencies",
    "LoadReport",
    "Measured",
    "Objectives",
    "build_report",
]


class ErrorCount(msgspec.Struct, frozen=True, kw_only=True):
    """Errors that are equal."""

    count: int
    kind: str
    status: int | None
    message: str


class Objectives(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Bounds, in milliseconds, within which an answer is good; None: any is."""

    ttft_ms: float | None = None
    itl_ms: float | None = None
    """Of the mean over the request's tokens."""
    e2e_ms: float | None = None


class Latencies(msgspec.Struct, frozen=True, kw_only=True):
    """Of some of the completed requests; the fields are those of LoadReport."""

    completed: int
    ttft_ms: Distribution | None
    itl_ms: Distribution | None
    chunk_gap_ms: Distribution | None


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
    goodput_per_s: float | None
    """Completed requests within the objectives, by `wall_s`; None without objectives."""
    output_tokens_per_s: float
    total_tokens_per_s: float
    """Prompts and outputs."""
    prompt_tokens: int
    cached_tokens: int
    """Of the prompts, which the server had in its prefix cache, as far as it says so."""
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
    chunk_gap_ms: Distribution | None
    """Between chunks of an answer, however many tokens they have: how the text jumps."""
    e2e_ms: Distribution | None
    """To the end of the answer."""
    delay_ms: Distribution | None
    """From the scheduled arrival to the sending: the wait for `max_concurrency`, and what the
    generator was late. Open loop only."""
    by_prompt: dict[str, Latencies]
    """Of a mixed load the latencies of requests with `short` and with `long` prompts; else
    empty."""
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


def build_report(
    run: Measured, settings: dict[str, Any], objectives: Objectives | None = None
) -> LoadReport:
    """Sums, rates and distributions."""
    done = [record for record in run.records if record.completed]
    failed = [record.error for record in run.records if record.error is not None]
    prompt_tokens = sum(record.prompt_tokens or 0 for record in done)
    output_tokens = sum(_output_tokens(record) for record in done)
    streamed = [record for record in done if record.chunk_times]
    chunks = sum(len(record.chunk_times) for record in streamed)
    of_all = _latencies(done)
    good = None if objectives is None else sum(_is_good(each, objectives) for each in done)
    by_prompt = {}
    if any(record.long for record in run.records):
        for name, long in (("short", False), ("long", True)):
            by_prompt[name] = _latencies([record for record in done if record.long is long])
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
        goodput_per_s=None if good is None else good / wall_s,
        output_tokens_per_s=output_tokens / wall_s,
        total_tokens_per_s=(prompt_tokens + output_tokens) / wall_s,
        prompt_tokens=prompt_tokens,
        cached_tokens=sum(record.cached_tokens for record in done),
        output_tokens=output_tokens,
        without_usage=sum(record.output_tokens is None for record in done),
        tokens_per_chunk=sum(map(_output_tokens, streamed)) / chunks if chunks else None,
        ttft_ms=of_all.ttft_ms,
        itl_ms=of_all.itl_ms,
        chunk_gap_ms=of_all.chunk_gap_ms,
        e2e_ms=distribution(ends),
        delay_ms=distribution(delays) if run.open_loop else None,
        by_prompt=by_prompt,
        generator_cpu_s=run.cpu_s,
        generator_cpu_share=run.cpu_s / wall_s,
        errors=_counted(failed),
    )


def _latencies(done: Sequence[RequestRecord]) -> Latencies:
    streamed = [record for record in done if record.chunk_times]
    tokens = [token for record in streamed for token in _inter_token(record)]
    gaps = [
        _ms(time - before) for record in streamed for before, time in pairwise(record.chunk_times)
    ]
    return Latencies(
        completed=len(done),
        ttft_ms=distribution([_first_ms(record) for record in streamed]),
        itl_ms=distribution([gap for gap, _ in tokens], [count for _, count in tokens]),
        chunk_gap_ms=distribution(gaps),
    )


def _first_ms(record: RequestRecord) -> float:
    return _ms(record.chunk_times[0] - record.scheduled)


def _inter_token(record: RequestRecord) -> Iterator[tuple[float, float]]:
    """Milliseconds a token since the tokens before, and how many tokens came after them."""
    times = record.chunk_times
    exact = len(record.chunk_tokens) == len(times)
    mean = max(_output_tokens(record), 1) / len(times)
    arrivals = [
        (time, sum(record.chunk_tokens[at] if exact else mean for at in together))
        for time, together in groupby(range(len(times)), times.__getitem__)
    ]
    for (before, _), (time, count) in pairwise(arrivals):
        yield _ms(time - before) / count, count


def _is_good(record: RequestRecord, objectives: Objectives) -> bool:
    """An answer in one piece has no times of tokens: it is good for objectives of them."""
    bounds = []
    if record.chunk_times:
        tokens = list(_inter_token(record))
        count = sum(each for _, each in tokens)
        mean = sum(gap * each for gap, each in tokens) / count if count else 0.0
        bounds = [(_first_ms(record), objectives.ttft_ms), (mean, objectives.itl_ms)]
    if record.ended is not None:
        bounds.append((_ms(record.ended - record.scheduled), objectives.e2e_ms))
    return all(bound is None or value <= bound for value, bound in bounds)


def _output_tokens(record: RequestRecord) -> int:
    return len(record.chunk_times) if record.output_tokens is None else record.output_tokens


def _counted(errors: Sequence[RequestError]) -> list[ErrorCount]:
    return [
        ErrorCount(count=count, kind=error.kind, status=error.status, message=error.message)
        for error, count in Counter(errors).most_common()
    ]


def _ms(seconds: float) -> float:
    return seconds * 1e3
