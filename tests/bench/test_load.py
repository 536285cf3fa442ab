"""What is measured, in exact numbers: the clock is the tests'."""

from __future__ import annotations

import asyncio
import itertools
import math
from array import array
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from framework.bench.answer import StreamAnswer
from framework.bench.loops import Limits, closed_loop, open_loop, poisson_gaps
from framework.bench.prompts import chosen
from framework.bench.record import RequestError, RequestRecord
from framework.bench.report import LoadReport, Measured, Objectives, build_report
from framework.bench.statistics import distribution


class Clock:
    """Stands still unless told."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        """Time passes; others get their turn."""
        self.now += seconds
        await asyncio.sleep(0)


def report_of(records: list[RequestRecord], *, open_loop: bool = False) -> LoadReport:
    """Of a run of 10 seconds."""
    run = Measured(records=records, wall_s=10, cpu_s=2.5, open_loop=open_loop, interrupted=False)
    return build_report(run, {})


def record_of(
    *times: float, tokens: int | None = None, by_chunk: list[int] | None = None
) -> RequestRecord:
    """A stream that was scheduled at 1 and sent at 1.5; ended half a second after its last
    chunk."""
    return RequestRecord(
        scheduled=1.0,
        sent=1.5,
        ended=times[-1] + 0.5,
        chunk_times=array("d", times),
        chunk_tokens=array("q", by_chunk or []),
        prompt_tokens=4,
        output_tokens=tokens,
    )


def test_chunks_are_timed_when_they_come() -> None:
    clock, record = Clock(), RequestRecord(scheduled=0.0)
    reading = StreamAnswer(record, clock)
    reading.head(200, "text/event-stream")
    pieces: list[tuple[float, bytes]] = [
        (1.0, b': comment\n\ndata: {"choices":[{"text":"a"}]}\n'),
        (2.0, b'\ndata: {"choices":[{"te'),
        (3.0, b'xt":"b"}]}\r\n\r\ndata:{"choices":[{"text":"c"}]}\n\n'),
        (4.0, b'data: {"choices":[{"text":"","finish_reason":"stop"}]}\n\n'),
        (5.0, b'data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":4}}\n\n'),
        (6.0, b"data: [DONE]\n\n"),
    ]
    for clock.now, data in pieces:
        reading.body(data)
    reading.end()
    assert record.error is None
    assert list(record.chunk_times) == [1.0, 3.0, 3.0]
    assert (record.prompt_tokens, record.output_tokens) == (3, 4)


@given(st.binary(max_size=40), st.integers(1, 7))
def test_how_bytes_are_cut_does_not_matter(junk: bytes, size: int) -> None:
    data = b'data: {"choices":[{"text":"a"}]}\n\n: %b\n\ndata: [DONE]\n\n' % junk.replace(
        b"\n", b""
    ).replace(b"\r", b"")
    record = RequestRecord(scheduled=0.0)
    reading = StreamAnswer(record, Clock())
    reading.head(200, "text/event-stream")
    for at in range(0, len(data), size):
        reading.body(data[at : at + size])
    reading.end()
    assert record.error is None
    assert len(record.chunk_times) == 1


def test_a_line_without_end_is_given_up() -> None:
    reading = StreamAnswer(RequestRecord(scheduled=0.0), Clock())
    reading.head(200, "text/event-stream")
    with pytest.raises(ConnectionError, match="a line of the stream has more than 16777216 bytes"):
        for _ in range(5):
            reading.body(b"x" * (4 << 20))


def test_latencies() -> None:
    report = report_of([record_of(2.0, 3.0, 3.5, tokens=3), record_of(4.0, tokens=1)])
    assert report.ttft_ms is not None and report.itl_ms is not None and report.e2e_ms is not None
    assert (report.ttft_ms.mean, report.ttft_ms.median, report.ttft_ms.max) == (2000, 1000, 3000)
    assert (report.itl_ms.count, report.itl_ms.mean, report.itl_ms.p99) == (2, 750, 1000)
    assert (report.e2e_ms.median, report.e2e_ms.p90) == (3000, 3500)
    assert report.delay_ms is None
    assert (report.requests_per_s, report.output_tokens_per_s) == (0.2, 0.4)
    assert report.total_tokens_per_s == 1.2
    assert report.generator_cpu_share == 0.25


def test_tokens_that_come_together_share_their_gap() -> None:
    exact = report_of([record_of(1.0, 2.0, 5.0, tokens=6, by_chunk=[1, 1, 4])])
    assert exact.itl_ms is not None
    # One token after 1000 ms, four after 3000 ms in all.
    assert (exact.itl_ms.count, exact.itl_ms.mean) == (5, 800)
    assert (exact.itl_ms.median, exact.itl_ms.p90) == (750, 1000)
    spread = report_of([record_of(1.0, 2.0, 5.0, tokens=6)])
    assert spread.itl_ms is not None
    assert (spread.itl_ms.count, spread.itl_ms.mean) == (4, 1000)
    assert (spread.itl_ms.median, spread.itl_ms.p90) == (500, 1500)
    assert spread.tokens_per_chunk == 2
    at_once = report_of([record_of(1.0, 1.0, 3.0, 3.0, 3.0, 4.0, tokens=6)])
    assert at_once.itl_ms is not None
    assert (at_once.itl_ms.count, at_once.itl_ms.mean) == (4, 750)
    assert at_once.itl_ms.median == pytest.approx(2000 / 3)
    assert at_once.itl_ms.max == 1000


def test_gaps_between_chunks_do_not_ask_for_tokens() -> None:
    report = report_of(
        [record_of(1.0, 1.0, 4.0, tokens=9, by_chunk=[1, 4, 4]), record_of(2.0, 2.5, tokens=8)]
    )
    assert report.chunk_gap_ms is not None
    assert report.chunk_gap_ms.count == 3
    assert (report.chunk_gap_ms.median, report.chunk_gap_ms.max) == (500, 3000)


def test_goodput_counts_what_keeps_to_all_objectives() -> None:
    # Scheduled at 1, ended half a second after the last chunk.
    records = [
        record_of(1.5, 2.0, 2.5, tokens=3),
        record_of(1.5, 2.5, tokens=3, by_chunk=[1, 2]),
        record_of(3.0, 3.1, tokens=2),
        record_of(1.2, tokens=1),
    ]

    def goodput(**objectives: float) -> float | None:
        run = Measured(records=records, wall_s=10, cpu_s=0, open_loop=False, interrupted=False)
        return build_report(run, {}, Objectives(**objectives)).goodput_per_s

    assert goodput(ttft_ms=500) == 0.3
    assert goodput(itl_ms=499) == 0.2
    assert goodput(itl_ms=500) == 0.4
    assert goodput(e2e_ms=2000) == 0.3
    assert goodput(ttft_ms=500, itl_ms=200) == 0.1
    records[0].error = RequestError(kind="event", message="no")
    assert goodput(ttft_ms=500) == 0.2


def test_long_prompts_are_measured_apart() -> None:
    long = record_of(5.0, 9.0, tokens=2)
    long.long = True
    report = report_of([record_of(2.0, 2.5, tokens=2), long])
    short_of, long_of = report.by_prompt["short"], report.by_prompt["long"]
    assert (short_of.completed, long_of.completed, report.completed) == (1, 1, 2)
    assert short_of.ttft_ms is not None and short_of.itl_ms is not None
    assert long_of.ttft_ms is not None and long_of.itl_ms is not None
    assert (short_of.ttft_ms.max, long_of.ttft_ms.max) == (1000, 4000)
    assert (short_of.itl_ms.max, long_of.itl_ms.max) == (500, 4000)
    assert report_of([record_of(2.0)]).by_prompt == {}


@given(st.floats(0, 1), st.integers(0, 5))
def test_who_is_chosen_is_a_function_of_number_and_seed(share: float, seed: int) -> None:
    found = [chosen(share, seed)(number) for number in range(50)]
    assert found == [chosen(share, seed)(number) for number in range(50)]
    more = [chosen(min(1.0, share + 0.1), seed)(number) for number in range(50)]
    assert all(later or not before for before, later in zip(found, more, strict=True))
    assert not any(chosen(0.0, seed)(number) for number in range(50))
    assert all(chosen(1.0, seed)(number) for number in range(50))


def test_errors_and_unfinished_are_not_measured() -> None:
    failed = record_of(2.0, tokens=1)
    failed.error = RequestError(kind="status", message="no", status=500)
    waiting = RequestRecord(scheduled=1.0)
    report = report_of([failed, waiting, failed])
    assert (report.sent, report.completed, report.failed, report.unfinished) == (3, 0, 2, 1)
    assert (report.ttft_ms, report.e2e_ms, report.output_tokens) == (None, None, 0)
    assert [(error.count, error.message) for error in report.errors] == [(2, "no")]


def test_an_open_loop_counts_from_the_scheduled_arrival() -> None:
    """A server that stalls until 10 s, and has one place."""
    clock = Clock()
    records: list[RequestRecord] = []

    async def ask(number: int, record: RequestRecord) -> None:
        record.sent = clock()
        clock.now = max(clock.now, 10.0)
        record.ended = clock() + number

    run = open_loop(
        ask,
        records,
        Limits(3, None),
        gaps=itertools.repeat(1.0),
        max_concurrency=1,
        clock=clock,
        sleep=clock.sleep,
    )
    asyncio.run(run)
    assert [record.scheduled for record in records] == [1.0, 2.0, 3.0]
    report = report_of(records, open_loop=True)
    assert report.e2e_ms is not None and report.delay_ms is not None
    assert (report.e2e_ms.mean, report.e2e_ms.max) == (9000, 9000)
    assert (report.delay_ms.median, report.delay_ms.max) == (7000, 8000)


def test_an_open_loop_sends_whatever_is_answered() -> None:
    clock = Clock()
    records: list[RequestRecord] = []
    at_once: list[int] = []

    async def main(max_concurrency: int | None) -> None:
        running = 0
        all_sent = asyncio.Event()

        async def ask(number: int, record: RequestRecord) -> None:
            nonlocal running
            running += 1
            at_once.append(running)
            if number == 4 or max_concurrency is not None:
                all_sent.set()
            await all_sent.wait()
            running -= 1

        await open_loop(
            ask,
            records,
            Limits(None, 5.0),
            gaps=itertools.repeat(0.9),
            max_concurrency=max_concurrency,
            clock=clock,
            sleep=clock.sleep,
        )

    asyncio.run(main(None))
    assert at_once == [1, 2, 3, 4, 5]
    at_once.clear()
    records.clear()
    asyncio.run(main(2))
    assert len(at_once) == 5
    assert max(at_once) <= 2


def test_a_closed_loop_keeps_its_clients_busy() -> None:
    clock = Clock()
    records: list[RequestRecord] = []

    async def ask(number: int, record: RequestRecord) -> None:
        await clock.sleep(1.0)
        record.ended = clock()

    loop = closed_loop(ask, records, Limits(None, 6.5), concurrency=2, clock=clock)
    asyncio.run(loop)
    assert [record.scheduled for record in records] == list(range(7))
    assert all(record.completed for record in records)


def test_what_was_measured_remains_when_a_loop_is_cancelled() -> None:
    records: list[RequestRecord] = []

    async def main() -> None:
        reached = asyncio.Event()

        async def ask(number: int, record: RequestRecord) -> None:
            if number == 2:
                reached.set()
                await asyncio.Event().wait()
            record.ended = 1.0

        loop = closed_loop(ask, records, Limits(9, None), concurrency=1, clock=Clock())
        task = asyncio.create_task(loop)
        await reached.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert [record.completed for record in records] == [True, True, False]


def test_poisson_arrivals() -> None:
    def arrivals(seed: int) -> list[float]:
        gaps: Iterator[float] = poisson_gaps(50.0, seed)
        return list(itertools.islice(gaps, 20_000))

    gaps = arrivals(1)
    assert gaps == arrivals(1) != arrivals(2)
    mean = sum(gaps) / len(gaps)
    assert mean == pytest.approx(1 / 50, rel=0.03)
    deviation = math.sqrt(sum((gap - mean) ** 2 for gap in gaps) / len(gaps))
    assert deviation == pytest.approx(mean, rel=0.05)  # as of an exponential distribution


def test_percentiles_are_by_nearest_rank() -> None:
    found = distribution(list(range(1, 101)))
    assert found is not None
    assert (found.median, found.p90, found.p95, found.p99) == (50, 90, 95, 99)
    assert (found.count, found.mean, found.max) == (100, 50.5, 100)
    assert distribution([]) is None


@given(st.lists(st.tuples(st.floats(0, 1e6), st.integers(1, 5)), min_size=1, max_size=50))
def test_a_weight_counts_as_often_as_the_value(pairs: list[tuple[float, int]]) -> None:
    weighted = distribution([value for value, _ in pairs], [count for _, count in pairs])
    repeated = distribution([value for value, count in pairs for _ in range(count)])
    assert weighted is not None and repeated is not None
    assert weighted.mean == pytest.approx(repeated.mean)
    for name in ("count", "median", "p90", "p95", "p99", "max"):
        assert getattr(weighted, name) == getattr(repeated, name)
