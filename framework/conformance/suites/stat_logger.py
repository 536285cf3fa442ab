"""Suite of stat loggers, alone and in a real engine."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

import msgspec
import pytest

from framework.conformance.base import NOT_DECLARED, Conformance
from framework.conformance.subject import Subject
from framework.conformance.worlds.descriptors import open_descriptors
from framework.conformance.worlds.detached import used_in_an_engine
from framework.conformance.worlds.front_ends import run_front_ends
from framework.conformance.worlds.growth import bytes_kept
from framework.conformance.worlds.leftovers import Leftovers
from framework.conformance.worlds.patience import within
from framework.conformance.worlds.prometheus_text import is_prometheus_text, read_page
from framework.conformance.worlds.statistics import (
    iteration_stats,
    odd_iterations,
    odd_scheduler_stats,
    plugin_calls,
    scheduler_stats,
)
from hookspecs.contracts.stats import Exposition, StatLogger
from hookspecs.errors import PluginLoadError
from hookspecs.types.stats import IterationStats, RejectionReason, SchedulerStats

__all__ = ["StatLoggerConformance"]

T = TypeVar("T")
New = Callable[[], StatLogger]

ENGINES = (0, 1, 7)
"""Indexes of the engines."""
BATCHES = 100
PROMPT_S = 3.0
"""Seconds for a hundred batches: forty times what writing each to a file takes."""
CLOSE_S = 15.0
"""Seconds for the last call, which may wait for a disk or a collector."""
BYTES = 10
"""Less than any trace of a request takes."""


class StatLoggerConformance(Conformance):
    """Stat loggers take what happened, and neither change it nor hold it up."""

    kind = "stat_logger"

    @pytest.fixture
    def new(self, subject: Subject) -> New:
        """Makes stat loggers."""
        plugins = subject.manager()
        return lambda: cast(
            "StatLogger",
            plugins.create(
                subject.kind.name,
                subject.provider,
                engine_indexes=ENGINES,
                model="scripted",
                max_model_len=1024,
                plugin_calls=plugin_calls,
            ),
        )

    # What it is told

    def test_every_batch_is_taken(self, new: New) -> None:
        """Requires nothing.
        Does: records batches with and without scheduler and iteration statistics, of several
        engines, empty ones and huge ones.
        Must: not raise; one that raises is detached, and tells nothing more until the end.
        """

        def work(logger: StatLogger) -> None:
            for number, (scheduler, iteration) in enumerate(_batches()):
                engine = ENGINES[number % len(ENGINES)]
                try:
                    logger.record(scheduler, iteration, engine)
                except Exception as error:
                    raise AssertionError(
                        f"record raised for {scheduler}, {iteration}, engine {engine}"
                    ) from error

        _with_one(new, work)

    def test_every_rejection_is_taken(self, new: New) -> None:
        """Requires nothing.
        Does: tells it of rejections for each reason, before it was told of anything else.
        Must: not raise.
        """

        def work(logger: StatLogger) -> None:
            for reason in [*RejectionReason, *map(str, RejectionReason)]:
                try:
                    logger.record_rejection(reason)
                except Exception as error:
                    raise AssertionError(f"record_rejection({reason!r}) raised") from error

        _with_one(new, work)

    def test_it_reports_with_and_without_news(self, new: New) -> None:
        """Requires nothing.
        Does: calls `report` before anything happened, after batches, and twice in a row.
        Must: not raise; the interval passes whether there was something or not.
        """

        def work(logger: StatLogger) -> None:
            logger.report()
            _record(logger, 0, 5)
            logger.report()
            logger.report()
            for scheduler, iteration in _batches():
                logger.record(scheduler, iteration)
            logger.report()

        _with_one(new, work)

    def test_statistics_are_not_changed(self, new: New) -> None:
        """Requires nothing.
        Does: compares statistics before and after it was told of them.
        Must: leave them as they are, with what is in them; the next stat logger gets the same
        objects.
        """

        def work(logger: StatLogger) -> None:
            for number, batch in enumerate(_batches()):
                before = msgspec.msgpack.encode(batch)
                logger.record(*batch, engine_index=ENGINES[number % len(ENGINES)])
                logger.report()
                assert msgspec.msgpack.encode(batch) == before, (
                    f"the stat logger changed what it was given to {batch}"
                )

        _with_one(new, work)

    # What it costs

    def test_calls_return_promptly(self, new: New) -> None:
        """Requires nothing.
        Does: a hundred batches, each with a report, and a few expositions.
        Must: be through within seconds: outputs wait for it. What takes long belongs into a
        thread.
        """

        logger = new()

        def play() -> None:
            for number in range(BATCHES):
                _record(logger, number, 1)
                logger.report()
                if number % 25 == 0:
                    logger.exposition()
            logger.record_rejection(RejectionReason.QUEUE_FULL)

        within(play, f"a stat logger, given {BATCHES} batches,", PROMPT_S)
        logger.close()

    def test_memory_does_not_grow(self, new: New) -> None:
        """Requires nothing.
        Does: measures the memory that thousands of requests leave behind, which have ended and
        were reported, and are of few tenants and labels.
        Must: keep nothing of each: an engine serves millions. Those since the last report may be
        kept, and a bounded number of others.
        """

        def work(logger: StatLogger) -> float:
            def tell(first: int, count: int) -> None:
                _record(logger, first, count, finished=1)
                logger.report()

            return bytes_kept(tell, BYTES)

        kept = _with_one(new, work)
        assert kept < BYTES, f"it keeps {kept:.0f} bytes of each request that ended"

    # What it shows

    def test_the_exposition_is_text_for_collectors(self, new: New) -> None:
        """Requires nothing.
        Does: asks for the exposition before and after batches; reads what says it is in the text
        format of Prometheus.
        Must: give None or an Exposition with a content type of printable ASCII and a body of
        bytes, in the format that it names, its histograms consistent.
        """

        def work(logger: StatLogger) -> None:
            for count in (0, 1, 40):
                _record(logger, count, count)
                _check(logger.exposition())
            for scheduler, iteration in _batches():
                logger.record(scheduler, iteration)
            _check(logger.exposition())

        _with_one(new, work)

    def test_counters_only_grow(self, new: New) -> None:
        """Requires nothing.
        Does: compares expositions after each of a few batches, if they are in the text format of
        Prometheus; every other batch is of another engine and smaller.
        Must: show no counter, and no count of a histogram, that is less than before or gone:
        collectors take that for a restart.
        """

        def work(logger: StatLogger) -> None:
            before = _counters(logger.exposition())
            for number in range(8):
                finished = 1 if number % 2 else 6
                logger.record(
                    scheduler_stats(number), iteration_stats(number, finished), number % 2
                )
                if number == 4:
                    logger.report()
                after = _counters(logger.exposition())
                gone = before.keys() - after.keys()
                assert not gone, f"the series {sorted(gone)[0]} is not there any more"
                less = [name for name, value in before.items() if after[name] < value]
                assert not less, (
                    f"the counter {less[0]} went from {before[less[0]]:g} to {after[less[0]]:g}"
                )
                before = after

        _with_one(new, work)

    # Life cycle

    def test_close_ends_it(self, new: New) -> None:
        """Requires nothing.
        Does: closes it before it was told of anything, after batches without a report, and after
        batches and a report, several times over.
        Must: return within seconds, and leave no thread, no process and no open file.
        """
        leftovers = Leftovers()
        # While they are alive, no garbage collection closes what close did not.
        alive: list[StatLogger] = []

        def live(number: int) -> None:
            logger = new()
            alive.append(logger)
            _record(logger, 0, 10 * (number % 3))
            if number % 3 == 2:
                logger.report()
            logger.close()

        within(partial(live, 0), "close before anything was recorded", CLOSE_S)
        within(partial(live, 1), "close after batches", CLOSE_S)
        before = open_descriptors()
        for number in range(6):
            within(partial(live, number), "close", CLOSE_S)
        assert open_descriptors() <= before + 1, (
            f"{open_descriptors() - before} files are open after six more were closed"
        )
        left = leftovers.names()
        assert not left, f"close leaves {', '.join(left)}"

    def test_two_live_side_by_side(self, new: New) -> None:
        """Requires nothing.
        Does: makes two, closes one, and goes on with the other, as two engines in one process do.
        Must: share nothing that ends with one of them.
        """

        def work(second: StatLogger) -> None:
            first = new()
            _record(first, 0, 3)
            _record(second, 0, 3)
            first.report()
            first.close()
            _record(second, 3, 3)
            second.report()
            _check(second.exposition())

        _with_one(new, work)

    def test_front_ends_share_a_directory(self, subject: Subject, tmp_path: Path) -> None:
        """Requires a plugin that other processes can import.
        Does: makes it in two front-end processes that have a shared directory, records batches,
        reports, asks for the exposition and closes, in both.
        Must: work in both.
        """
        try:
            said = run_front_ends(subject, 2, shared_dir=str(tmp_path))
        except PluginLoadError:
            pytest.skip(f"{NOT_DECLARED}a plugin that other processes can import")
        for index, complaint in enumerate(said):
            assert not complaint, f"in front-end process {index}: {complaint}"

    # In an engine

    def test_an_engine_keeps_it(self, subject: Subject) -> None:
        """Requires nothing.
        Does: generates in a real engine with aborts, failures, several outputs of one prompt and
        reports in between; once more without the stat logger.
        Must: not be detached, and change no token.
        """
        with_it, failures = used_in_an_engine(subject, stats={"interval_s": 0.01})
        said = "; ".join(f"{each.plugin}: {each.error}" for each in failures)
        assert not failures, f"the kernel detached: {said}"
        without, _ = used_in_an_engine(subject, stats={"loggers": []})
        assert with_it == without, "tokens change when the stat logger is there"


def _with_one(new: New, work: Callable[[StatLogger], T]) -> T:
    """Work with a new one in one thread, as in the kernel; it is closed whatever happens."""

    def run() -> T:
        logger = new()
        try:
            return work(logger)
        finally:
            logger.close()

    return within(run, "a stat logger", seconds=60)


def _record(logger: StatLogger, first: int, count: int, finished: int = 4) -> None:
    for number in range(first, first + count):
        iteration = iteration_stats(number * finished, finished)
        logger.record(scheduler_stats(number), iteration, ENGINES[number % len(ENGINES)])


def _batches() -> Iterator[tuple[SchedulerStats | None, IterationStats | None]]:
    schedulers = [None, scheduler_stats(3), *odd_scheduler_stats()]
    iterations = [None, iteration_stats(0), iteration_stats(9, finished=0), *odd_iterations()]
    return itertools.product(schedulers, iterations)


def _check(made: Any) -> None:
    if made is None:
        return
    assert isinstance(made, Exposition), f"exposition gave {type(made).__name__}"
    kind, body = made.content_type, made.body
    assert isinstance(kind, str), f"its content_type is {kind!r}"
    assert kind.isascii(), f"its content_type {kind!r} is not ASCII"
    assert kind and kind.isprintable(), f"its content_type {kind!r} is no printable text"
    assert isinstance(body, bytes), f"its body is {type(body).__name__}, not bytes"
    if is_prometheus_text(kind):
        read_page(body)


def _counters(made: Exposition | None) -> dict[Any, float]:
    if made is None or not is_prometheus_text(made.content_type):
        return {}
    return read_page(made.body).counters()
