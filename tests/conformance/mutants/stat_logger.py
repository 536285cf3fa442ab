"""Broken stat loggers."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar, cast

from hookspecs import PluginInfo, Provider, hookimpl
from hookspecs.contracts.stats import Exposition, StatLogger, StatLoggerContext
from hookspecs.types.request import FinishReason
from hookspecs.types.stats import FinishedRequestStats, IterationStats, SchedulerStats
from tests.conformance.mutants.mutant import Mutant, providing

__all__ = ["MUTANTS"]

PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"


class Counting(StatLogger):
    """A right one: counts what ended, for Prometheus."""

    count = 0

    def record(
        self,
        scheduler: SchedulerStats | None,
        iteration: IterationStats | None,
        engine_index: int = 0,
    ) -> None:
        if iteration is not None:
            self.iteration(iteration)

    def iteration(self, stats: IterationStats) -> None:
        self.count += len(stats.finished)

    def exposition(self) -> Exposition | None:
        return Exposition(content_type=PROMETHEUS, body=self.page().encode())

    def page(self) -> str:
        return f"# TYPE ended counter\nended {self.count}\n"


class WantsBoth(Counting):
    """Takes a batch for granted that has both statistics."""

    def record(
        self,
        scheduler: SchedulerStats | None,
        iteration: IterationStats | None,
        engine_index: int = 0,
    ) -> None:
        self.count += cast("SchedulerStats", scheduler).step


class DividesByBlocks(Counting):
    def record(
        self,
        scheduler: SchedulerStats | None,
        iteration: IterationStats | None,
        engine_index: int = 0,
    ) -> None:
        if scheduler is not None:
            self.count = scheduler.kv_blocks_free // scheduler.kv_blocks_total


class KnowsTwoReasons(Counting):
    def record_rejection(self, reason: str) -> None:
        self.count += {"draining": 1, "queue_full": 1}[reason]


class DividesByRequests(Counting):
    """The mean of an interval without requests."""

    def report(self) -> None:
        self.count = 100 // self.count


class SortsLatencies(Counting):
    """Changes what the next stat logger gets."""

    def iteration(self, stats: IterationStats) -> None:
        stats.inter_token_latency.append(0.0)


class WritesToAFarDisk(Counting):
    """Blocks in an observer."""

    def report(self) -> None:
        time.sleep(0.1)


class KeepsRequests(Counting):
    def __init__(self, context: StatLoggerContext) -> None:
        super().__init__(context)
        self._all: list[FinishedRequestStats] = []

    def iteration(self, stats: IterationStats) -> None:
        self._all.extend(stats.finished)


class KeepsIds(Counting):
    def __init__(self, context: StatLoggerContext) -> None:
        super().__init__(context)
        self._seen: set[str] = set()

    def iteration(self, stats: IterationStats) -> None:
        self._seen.update(each.request_id for each in stats.finished)


class ShowsText(Counting):
    def exposition(self) -> Exposition | None:
        return cast("Exposition", self.page())


class QuotesNothing(Counting):
    def page(self) -> str:
        return f'# TYPE ended counter\nended{{tenant="a\\b"}} {self.count}\n'


class CountsNoBucketTwice(Counting):
    """Stats that do not add up: buckets of the format hold all that is smaller."""

    def page(self) -> str:
        return (
            "# TYPE length histogram\n"
            f'length_bucket{{le="8"}} {self.count}\nlength_bucket{{le="+Inf"}} 0\n'
            f"length_sum 0\nlength_count {self.count}\n"
        )


class CountsTheLastBatch(Counting):
    """Stats that do not add up: a counter of what is new."""

    def iteration(self, stats: IterationStats) -> None:
        self.count = len(stats.finished)


class ForgetsAtReport(Counting):
    def report(self) -> None:
        self.count = 0


class LeavesItsThread(Counting):
    def __init__(self, context: StatLoggerContext) -> None:
        super().__init__(context)
        threading.Thread(target=threading.Event().wait, args=(6.0,), daemon=True).start()


class LeavesItsFile(Counting):
    _open: ClassVar[list[int]] = []

    def __init__(self, context: StatLoggerContext) -> None:
        super().__init__(context)
        self._open.append(os.open(os.devnull, os.O_WRONLY))


class CannotCloseEarly(Counting):
    def close(self) -> None:
        if not self.count:
            raise RuntimeError("there was nothing")


class LetsGarbageCloseIt(Counting):
    """Its file is closed when nobody holds it any more."""

    def __init__(self, context: StatLoggerContext) -> None:
        super().__init__(context)
        self._file = open(os.devnull, "wb")  # noqa: SIM115


class ClosesForAll(Counting):
    """Leaks between engines: its sink is the class's."""

    _closed: ClassVar[bool] = False

    def __init__(self, context: StatLoggerContext) -> None:
        super().__init__(context)
        type(self)._closed = False

    def iteration(self, stats: IterationStats) -> None:
        if self._closed:
            raise RuntimeError("closed")

    def close(self) -> None:
        type(self)._closed = True


class WantsTheDirectoryAlone(Counting):
    def __init__(self, context: StatLoggerContext) -> None:
        super().__init__(context)
        if context.shared_dir is not None:
            Path(context.shared_dir, "values").mkdir()


class AlonePlugin:
    """At the top of its module, so that other processes can import it."""

    PLUGIN = PluginInfo(name="mutant", api=">=1.0,<2")

    @hookimpl
    def register_stat_loggers(self) -> Iterable[Provider[StatLogger]]:
        yield Provider("mutant", f"{__name__}:WantsTheDirectoryAlone")


ALONE = AlonePlugin()


class FailsForAborts(Counting):
    def iteration(self, stats: IterationStats) -> None:
        for each in stats.finished:
            if each.finish_reason is FinishReason.ABORT:
                raise RuntimeError("aborted")


def _mutant(fault: str, part: type[StatLogger], *caught_by: str) -> Mutant:
    return Mutant("stat_logger", fault, providing("stat_logger", part), caught_by)


MUTANTS = [
    _mutant("wants both statistics", WantsBoth, "test_every_batch_is_taken"),
    _mutant("divides by no blocks", DividesByBlocks, "test_every_batch_is_taken"),
    _mutant("knows two reasons", KnowsTwoReasons, "test_every_rejection_is_taken"),
    _mutant("divides by no requests", DividesByRequests, "test_it_reports_with_and_without_news"),
    _mutant("changes statistics", SortsLatencies, "test_statistics_are_not_changed"),
    _mutant("blocks in a report", WritesToAFarDisk, "test_calls_return_promptly"),
    _mutant("keeps requests", KeepsRequests, "test_memory_does_not_grow"),
    _mutant("keeps ids", KeepsIds, "test_memory_does_not_grow"),
    _mutant("exposes a str", ShowsText, "test_the_exposition_is_text_for_collectors"),
    _mutant("does not escape labels", QuotesNothing, "test_the_exposition_is_text_for_collectors"),
    _mutant(
        "buckets do not add up", CountsNoBucketTwice, "test_the_exposition_is_text_for_collectors"
    ),
    _mutant("counter of the last batch", CountsTheLastBatch, "test_counters_only_grow"),
    _mutant("counters begin anew at a report", ForgetsAtReport, "test_counters_only_grow"),
    _mutant("leaves its thread", LeavesItsThread, "test_close_ends_it"),
    _mutant("leaves its file open", LeavesItsFile, "test_close_ends_it"),
    _mutant("can not close early", CannotCloseEarly, "test_close_ends_it"),
    _mutant("leaves its file to garbage", LetsGarbageCloseIt, "test_close_ends_it"),
    _mutant("closes the sink of another", ClosesForAll, "test_two_live_side_by_side"),
    Mutant(
        "stat_logger",
        "wants the shared directory alone",
        ALONE,
        ("test_front_ends_share_a_directory",),
    ),
    _mutant("raises for aborts", FailsForAborts, "test_an_engine_keeps_it"),
]
