"""The stat logger `console`: what its line says, and when it says nothing."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builtin_plugins.stats_console.console import ConsoleStatLogger
from builtin_plugins.stats_console.hit_rate import RecentHitRate
from builtin_plugins.stats_console.plugin import plugin
from hookspecs import EngineConfig, FinishReason
from hookspecs.contracts.stats import StatLoggerContext
from hookspecs.types.stats import (
    FinishedRequestStats,
    IterationStats,
    PrefixCacheStats,
    SchedulerStats,
)


class Clock:
    """Seconds that pass when told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def console(clock: Clock, caplog: pytest.LogCaptureFixture) -> ConsoleStatLogger:
    caplog.set_level(logging.INFO, logger="framework.stats")
    return ConsoleStatLogger(StatLoggerContext(config=EngineConfig()), clock)


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [r for r in caplog.records if r.name == "framework.stats"]
    assert all(r.levelno == logging.INFO for r in found)
    return [r.getMessage() for r in found]


def busy(generation: int = 1) -> IterationStats:
    return IterationStats(timestamp=0.0, num_generation_tokens=generation)


def test_line_holds_rates_load_and_cache(
    console: ConsoleStatLogger, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    for preempted in (1, 2):
        console.record(
            SchedulerStats(
                num_running=3,
                num_waiting=4,
                num_preempted=preempted,
                kv_blocks_total=40,
                kv_blocks_free=30,
                prefix_cache=PrefixCacheStats(requests=1, queries=200, hits=50),
            ),
            IterationStats(
                timestamp=0.0, num_prompt_tokens=100, num_cached_tokens=25, num_generation_tokens=7
            ),
        )
    clock.now += 10
    console.report()
    assert lines(caplog) == [
        "prompt 15.0 tokens/s, generation 1.4 tokens/s, running 3, waiting 4, "
        "KV cache usage 25.0%, prefix cache hit rate 25.0%, preemptions 3"
    ]


def test_each_interval_counts_its_own(
    console: ConsoleStatLogger, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    console.record(SchedulerStats(num_running=1, num_preempted=5), busy(100))
    clock.now += 10
    console.report()
    console.record(SchedulerStats(num_running=1), busy(10))
    clock.now += 2
    console.report()
    assert "generation 5.0 tokens/s" in lines(caplog)[1]
    assert "preemptions 0" in lines(caplog)[1]


def test_silent_before_anything_and_after_the_last_activity(
    console: ConsoleStatLogger, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    clock.now += 10
    console.report()
    assert lines(caplog) == []
    console.record(SchedulerStats(num_running=1), busy())
    for _ in range(3):
        clock.now += 10
        console.report()
    assert len(lines(caplog)) == 1


@pytest.mark.parametrize(
    ("scheduler", "iteration", "logged"),
    [
        (SchedulerStats(kv_blocks_total=8, kv_blocks_free=8), IterationStats(timestamp=0.0), False),
        (None, None, False),
        (SchedulerStats(num_running=1), None, True),
        (SchedulerStats(num_waiting=1), None, True),
        (SchedulerStats(num_preempted=1), None, True),
        (None, IterationStats(timestamp=0.0, num_prompt_tokens=1), True),
        (
            None,
            IterationStats(
                timestamp=0.0,
                finished=[
                    FinishedRequestStats(
                        request_id="a",
                        finish_reason=FinishReason.ABORT,
                        num_prompt_tokens=1,
                        num_generation_tokens=0,
                    )
                ],
            ),
            True,
        ),
    ],
)
def test_what_counts_as_activity(
    console: ConsoleStatLogger,
    clock: Clock,
    caplog: pytest.LogCaptureFixture,
    scheduler: SchedulerStats | None,
    iteration: IterationStats | None,
    logged: bool,
) -> None:
    console.record(scheduler, iteration)
    clock.now += 1
    console.report()
    assert bool(lines(caplog)) is logged


def test_idle_time_does_not_lower_the_next_rate(
    console: ConsoleStatLogger, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    clock.now += 1000
    console.report()
    console.record(None, busy(50))
    clock.now += 10
    console.report()
    assert "generation 5.0 tokens/s" in lines(caplog)[0]


def test_a_report_without_time_between_loses_nothing(
    console: ConsoleStatLogger, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    console.record(None, busy(50))
    console.report()
    assert lines(caplog) == []
    clock.now += 10
    console.report()
    assert "generation 5.0 tokens/s" in lines(caplog)[0]


def test_engines_are_summed(
    console: ConsoleStatLogger, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    console.record(SchedulerStats(num_running=9), None, 1)
    console.record(SchedulerStats(num_running=1, kv_blocks_total=30, kv_blocks_free=30), None, 0)
    console.record(SchedulerStats(num_running=2, kv_blocks_total=10, kv_blocks_free=0), None, 1)
    clock.now += 1
    console.report()
    assert "running 3," in lines(caplog)[0]
    assert "KV cache usage 25.0%" in lines(caplog)[0]


def test_hit_rate_is_a_dash_before_the_first_lookup(
    console: ConsoleStatLogger, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    console.record(None, busy())
    clock.now += 1
    console.report()
    assert "prefix cache hit rate -," in lines(caplog)[0]


def test_hit_rate_forgets_old_requests_and_starts_anew_after_a_reset() -> None:
    rate = RecentHitRate(window=2)
    assert rate.value is None
    rate.add(PrefixCacheStats(requests=1, queries=10, hits=10))
    rate.add(PrefixCacheStats(requests=1, queries=10, hits=0))
    assert rate.value == 0.5
    rate.add(PrefixCacheStats(preempted_requests=1, preempted_queries=10, preempted_hits=10))
    assert rate.value == 0.5
    rate.add(PrefixCacheStats(requests=1, queries=10, hits=0))
    assert rate.value == 0.0
    rate.add(PrefixCacheStats(resets=1))
    assert rate.value is None


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 50), st.floats(0, 1)), max_size=40))
def test_hit_rate_is_that_of_the_shortest_tail_that_fills_the_window(
    batches: list[tuple[int, int, float]],
) -> None:
    window = 7
    rate = RecentHitRate(window)
    added: list[PrefixCacheStats] = []
    for requests, queries, share in batches:
        stats = PrefixCacheStats(requests=requests, queries=queries, hits=int(queries * share))
        rate.add(stats)
        if requests:
            added.append(stats)
    tail: list[PrefixCacheStats] = []
    while added and sum(stats.requests for stats in tail) < window:
        tail.insert(0, added.pop())
    queries = sum(stats.queries for stats in tail)
    assert rate.value == (sum(stats.hits for stats in tail) / queries if queries else None)


def test_plugin_offers_console() -> None:
    (provider,) = plugin.register_stat_loggers()
    assert provider.name == "console"
    assert provider.target == "builtin_plugins.stats_console.console:ConsoleStatLogger"


def test_the_first_interval_begins_with_the_first_request(
    console: ConsoleStatLogger, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    clock.now += 60  # a model is loaded
    console.report()
    console.record(SchedulerStats(), None)  # nothing was done
    clock.now += 60
    console.record(
        SchedulerStats(num_running=1),
        IterationStats(
            timestamp=0.0,
            num_prompt_tokens=8,
            num_generation_tokens=1,
            time_to_first_token=[0.5, 2.0],
        ),
    )
    clock.now += 2
    console.record(SchedulerStats(num_running=1), busy(7))
    console.report()
    [line] = lines(caplog)
    assert line.startswith("prompt 2.0 tokens/s, generation 2.0 tokens/s,")
