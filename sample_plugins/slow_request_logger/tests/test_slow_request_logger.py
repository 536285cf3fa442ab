"""Which requests are logged, and what the line says."""

from __future__ import annotations

import logging
from typing import Any

import msgspec
import pytest
from hookspecs import EngineConfig, FinishReason
from hookspecs.contracts.stats import StatLoggerContext
from hookspecs.types.stats import FinishedRequestStats, IterationStats, SchedulerStats

from slow_request_logger.options import SlowRequestOptions
from slow_request_logger.plugin import plugin
from slow_request_logger.stat_logger import SlowRequestLogger


def subject(**limits: float) -> SlowRequestLogger:
    options = SlowRequestOptions(**limits)
    return SlowRequestLogger(StatLoggerContext(config=EngineConfig(), options=options))


def batch(**facts: Any) -> IterationStats:
    """A batch of outputs in which one request finished."""
    stats = FinishedRequestStats(
        request_id="r-1",
        finish_reason=FinishReason.STOP,
        num_prompt_tokens=12,
        num_generation_tokens=3,
    )
    return IterationStats(timestamp=0.0, finished=[msgspec.structs.replace(stats, **facts)])


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.WARNING, logger="slow_request_logger")
    return caplog


@pytest.mark.parametrize(
    ("e2e", "first", "reasons"),
    [
        (2.0, 1.0, []),
        (2.5, 1.0, ["end-to-end latency 2.500 s > 2 s"]),
        (2.0, 1.5, ["time to first token 1.500 s > 1 s"]),
        (2.5, 1.5, ["end-to-end latency 2.500 s > 2 s", "time to first token 1.500 s > 1 s"]),
    ],
)
def test_a_request_is_logged_once_with_each_limit_it_exceeds(
    log: pytest.LogCaptureFixture, e2e: float, first: float, reasons: list[str]
) -> None:
    slow = subject(e2e_latency_s=2.0, time_to_first_token_s=1.0)
    slow.record(None, batch(e2e_latency=e2e, time_to_first_token=first))
    assert len(log.messages) == bool(reasons)
    if reasons:
        assert f": {', '.join(reasons)}; " in log.messages[0]


def test_the_line_says_who_was_slow(log: pytest.LogCaptureFixture) -> None:
    subject().record(
        SchedulerStats(),
        batch(e2e_latency=60.0, tenant="acme", labels={"route": "/chat"}, queue_time=50.0),
        engine_index=1,
    )
    (record,) = log.records
    assert record.levelno == logging.WARNING
    for part in ("'r-1'", "'acme'", "{'route': '/chat'}", "engine 1", "stop", "queued 50.000 s"):
        assert part in record.getMessage()


def test_a_request_that_never_got_a_token_counts_too(log: pytest.LogCaptureFixture) -> None:
    subject().record(
        None, batch(e2e_latency=60.0, finish_reason=FinishReason.TIMEOUT, num_generation_tokens=0)
    )
    assert "finish reason timeout" in log.messages[0]


def test_line_breaks_from_users_stay_in_the_line(log: pytest.LogCaptureFixture) -> None:
    subject().record(
        None,
        batch(e2e_latency=60.0, request_id="a\nb", tenant="c\nd", labels={"e\nf": "g\nh"}),
    )
    assert "\n" not in log.messages[0]


def test_batches_without_finished_requests_log_nothing(log: pytest.LogCaptureFixture) -> None:
    slow = subject()
    slow.record(SchedulerStats(num_running=1), None)
    slow.record(None, IterationStats(timestamp=0.0, time_to_first_token=[100.0]))
    slow.report()
    slow.close()
    assert log.messages == []


def test_an_infinite_limit_is_never_exceeded(log: pytest.LogCaptureFixture) -> None:
    slow = subject(e2e_latency_s=float("inf"))
    slow.record(None, batch(e2e_latency=1e9, time_to_first_token=1.0))
    assert log.messages == []


@pytest.mark.parametrize("limit", [0, -1, float("nan"), "long"])
@pytest.mark.parametrize("option", ["e2e_latency_s", "time_to_first_token_s"])
def test_a_limit_out_of_bounds_is_refused(option: str, limit: object) -> None:
    with pytest.raises(msgspec.ValidationError, match=option):
        msgspec.convert({option: limit}, SlowRequestOptions)


def test_an_unknown_option_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError, match="ttft"):
        msgspec.convert({"ttft": 1}, SlowRequestOptions)


def test_the_plugin_offers_the_stat_logger() -> None:
    (provider,) = plugin.register_stat_loggers()
    assert provider.name == "slow-requests"
    assert provider.options is SlowRequestOptions
