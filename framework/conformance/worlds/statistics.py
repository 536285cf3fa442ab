"""Statistics and finished requests, as the kernel makes them for stat loggers and tracers."""

from __future__ import annotations

from typing import Final

from hookspecs.contracts.stats import FinishedRequest
from hookspecs.types.request import FinishReason
from hookspecs.types.sampling import SamplingParams
from hookspecs.types.stats import (
    FinishedRequestStats,
    IterationStats,
    PluginCallStats,
    PrefixCacheStats,
    SchedulerStats,
)

__all__ = [
    "TRACE_HEADERS",
    "finished_request",
    "finished_stats",
    "iteration_stats",
    "odd_iterations",
    "odd_requests",
    "odd_scheduler_stats",
    "plugin_calls",
    "scheduler_stats",
]

_REASONS: Final = tuple(FinishReason)
_HUGE: Final = 2**50
_YEAR_S: Final = 3e7

TRACE_HEADERS: Final[tuple[dict[str, str], ...]] = (
    {},
    {"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"},
    {
        "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00",
        "tracestate": "vendor=value,other=1",
    },
    {"traceparent": "00-00000000000000000000000000000000-0000000000000000-01"},
    {"traceparent": "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"},
    {"traceparent": "not a trace", "tracestate": "=,,="},
    {"traceparent": ""},
    {"traceparent": "\N{SNOWMAN}" * 40},
    {"tracestate": "vendor=value"},
)
"""Absent, valid, and what a caller may send instead."""


def finished_stats(number: int, **fields: object) -> FinishedRequestStats:
    """Of request `number`: of all finish reasons in turn, three tenants. `fields` override."""
    tokens = number % 7
    values: dict[str, object] = {
        "request_id": f"request-{number}",
        "finish_reason": _REASONS[number % len(_REASONS)],
        "num_prompt_tokens": 5 + number % 11,
        "num_generation_tokens": tokens,
        "num_cached_tokens": number % 5,
        "num_preemptions": number % 3,
        "max_tokens": 16,
        "e2e_latency": 0.08,
        "queue_time": 0.01,
        "prefill_time": 0.02,
        "decode_time": 0.01 * max(0, tokens - 1),
        "time_to_first_token": 0.03,
        "prefilled": number % 4 > 0,
        "tenant": ("", "red", "green")[number % 3],
        "labels": {"team": "blue"} if number % 2 else {},
        **fields,
    }
    return FinishedRequestStats(**values)  # type: ignore[arg-type]


def finished_request(number: int, *, index: int = 0, n: int = 1) -> FinishedRequest:
    """Output `index` of the n outputs of request `number`."""
    return FinishedRequest(
        request_id=f"request-{number}",
        stats=finished_stats(number, n=n),
        index=index,
        params=SamplingParams(n=n, max_tokens=16, temperature=(number % 3) / 2),
        trace_headers=dict(TRACE_HEADERS[number % len(TRACE_HEADERS)]),
        ended_at_ns=1_700_000_000_000_000_000 + number * 1_000_000,
    )


def odd_requests() -> list[FinishedRequest]:
    """Of every finish reason, with values at the ends of their ranges."""
    return [
        FinishedRequest(
            request_id=odd.request_id,
            stats=odd,
            index=odd.n - 1,
            params=SamplingParams(n=odd.n),
            trace_headers=dict(TRACE_HEADERS[number % len(TRACE_HEADERS)]),
            ended_at_ns=1_700_000_000_000_000_000,
        )
        for number, reason in enumerate(FinishReason)
        for odd in _odd_stats(number, reason)
    ]


def _odd_stats(number: int, reason: FinishReason) -> list[FinishedRequestStats]:
    name = f"odd-{number}"
    return [
        FinishedRequestStats(
            request_id=name, finish_reason=reason, num_prompt_tokens=0, num_generation_tokens=0
        ),
        finished_stats(
            number,
            request_id=name,
            finish_reason=reason,
            num_prompt_tokens=_HUGE,
            num_generation_tokens=_HUGE,
            num_cached_tokens=_HUGE,
            max_tokens=_HUGE,
            e2e_latency=_YEAR_S,
            decode_time=_YEAR_S,
            n=64,
        ),
        finished_stats(
            number,
            request_id='line\nbreak \N{SNOWMAN} "quoted" 100%s {0} \x00',
            finish_reason=reason,
            tenant='t\n\t"\\',
            labels={"a b": "c\nd", "": ""},
        ),
        FinishedRequestStats(
            request_id=name,
            finish_reason=reason,
            num_prompt_tokens=3,
            num_generation_tokens=0,
            pooling=True,
            prefilled=True,
            e2e_latency=0.05,
        ),
    ]


def iteration_stats(first: int, finished: int = 4) -> IterationStats:
    """A batch in which the requests `first` and following end."""
    return IterationStats(
        timestamp=1000.0 + first,
        num_prompt_tokens=40,
        num_cached_tokens=8,
        num_generation_tokens=12,
        time_to_first_token=[0.02, 0.03],
        inter_token_latency=[0.01] * 10,
        finished=[finished_stats(number) for number in range(first, first + finished)],
    )


def odd_iterations() -> list[IterationStats]:
    """Empty, huge, and of each way to end."""
    ended = [stats for number, why in enumerate(FinishReason) for stats in _odd_stats(number, why)]
    return [
        IterationStats(timestamp=0.0),
        IterationStats(
            timestamp=1e12,
            num_prompt_tokens=_HUGE,
            num_cached_tokens=_HUGE,
            num_generation_tokens=_HUGE,
            time_to_first_token=[0.0, _YEAR_S],
            inter_token_latency=[0.0, _YEAR_S],
        ),
        IterationStats(timestamp=5.0, finished=ended),
    ]


def scheduler_stats(number: int) -> SchedulerStats:
    """After step `number`."""
    return SchedulerStats(
        num_running=number % 9,
        num_waiting=number % 5,
        num_preempted=number % 2,
        kv_blocks_total=64,
        kv_blocks_free=number % 65,
        prefix_cache=PrefixCacheStats(requests=1, queries=9, hits=number % 9),
        step=number,
    )


def odd_scheduler_stats() -> list[SchedulerStats]:
    """Of an engine without blocks, that sleeps, that is dead, and of a huge one."""
    return [
        SchedulerStats(),
        SchedulerStats(state="sleeping", sleep_level=1),
        SchedulerStats(state="sleeping", sleep_level=2, step=5),
        SchedulerStats(state="dead", kv_blocks_total=8, kv_blocks_free=8),
        SchedulerStats(
            num_running=_HUGE,
            num_waiting=_HUGE,
            num_preempted=_HUGE,
            kv_blocks_total=_HUGE,
            prefix_cache=PrefixCacheStats(queries=_HUGE, hits=_HUGE, evictions=_HUGE, resets=9),
            step=_HUGE,
        ),
    ]


def plugin_calls() -> list[PluginCallStats]:
    """As a stat logger's context gives them."""
    return [
        PluginCallStats(
            plugin="another",
            hook="on_step_finished",
            process="engine-core-0",
            calls=7,
            errors=1,
            seconds=0.25,
        )
    ]
