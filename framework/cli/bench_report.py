"""What `framework bench serve` prints."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from framework.cli.output import print_table

if TYPE_CHECKING:
    from framework.bench.report import LoadReport
    from framework.bench.statistics import Distribution

__all__ = ["print_failures", "print_loops", "print_report"]

_REASONS: Final = 5
"""Distinct errors that are listed."""
_BUSY: Final = 0.8
"""Share of a core from which the generator may be what limits."""
_CACHED: Final = 0.3
"""Share of random prompts, from which on more is cached than what chat templates have in common."""


def print_report(report: LoadReport) -> None:
    """All of one loop."""
    settings = report.settings
    print(f"{settings['model']} at {settings['url']}, {settings['endpoint']}, {_loop(report)}")
    rows = [
        ("wall time", f"{report.wall_s:.2f} s"),
        ("requests completed / failed / unfinished",
         f"{report.completed} / {report.failed} / {report.unfinished}"),
        ("requests/s", f"{report.requests_per_s:.2f}"),
        ("output tokens/s", f"{report.output_tokens_per_s:.1f}"),
        ("prompt and output tokens/s", f"{report.total_tokens_per_s:.1f}"),
        ("prompt / output tokens", f"{report.prompt_tokens} / {report.output_tokens}"),
        ("tokens per chunk", _number(report.tokens_per_chunk)),
        ("CPU time of the generator",
         f"{report.generator_cpu_s:.2f} s ({report.generator_cpu_share:.0%} of a core)"),
    ]  # fmt: skip
    if report.goodput_per_s is not None:
        rows.insert(3, ("requests/s within the objectives", f"{report.goodput_per_s:.2f}"))
    print_table(("", "value"), rows)
    latencies = [
        ("time to first token", report.ttft_ms),
        ("inter-token latency", report.itl_ms),
        ("between chunks", report.chunk_gap_ms),
        ("end to end", report.e2e_ms),
        ("delay of sending", report.delay_ms),
    ]
    for prompts, found in report.by_prompt.items():
        latencies += [
            (f"{prompts} prompts: time to first token", found.ttft_ms),
            (f"{prompts} prompts: inter-token latency", found.itl_ms),
        ]
    columns = ("milliseconds", "mean", "median", "p90", "p95", "p99", "max")
    print_table(columns, [_latency(*row) for row in latencies if row[1] is not None])
    print("percentiles by nearest rank; inter-token latency by token")
    _print_notes(report)


def print_loops(reports: Sequence[LoadReport]) -> None:
    """A line for each loop."""
    settings = reports[0].settings
    print(f"{settings['model']} at {settings['url']}, {settings['endpoint']}")
    columns = (
        "loop", "completed / failed", "requests/s", "good/s", "output tokens/s",
        "TTFT p50 / p90 / p99, ms", "ITL p50 / p90 / p99, ms",
    )  # fmt: skip
    rows = [
        (
            _loop(report),
            f"{report.completed} / {report.failed}",
            f"{report.requests_per_s:.2f}",
            _number(report.goodput_per_s),
            f"{report.output_tokens_per_s:.1f}",
            _percentiles(report.ttft_ms),
            _percentiles(report.itl_ms),
        )
        for report in reports
    ]
    print_table(columns, rows)
    for report in reports:
        _print_notes(report)


def print_failures(reports: Sequence[LoadReport]) -> bool:
    """How many requests of all loops failed and why, on standard error; whether any did."""
    reasons: Counter[tuple[str, str]] = Counter()
    for report in reports:
        for error in report.errors:
            kind = error.kind if error.status is None else f"{error.kind} {error.status}"
            reasons[kind, error.message] += error.count
    if not reasons:
        return False
    sys.stdout.flush()
    sent = sum(report.sent for report in reports)
    lines = [f"framework: error: {reasons.total()} of {sent} requests failed"]
    for (kind, message), count in reasons.most_common(_REASONS):
        lines.append(f"{count:7} {kind}: {message}")
    if len(reasons) > _REASONS:
        lines.append(f"and {len(reasons) - _REASONS} other errors, see --json")
    print("\n".join(lines), file=sys.stderr)
    return True


def _print_notes(report: LoadReport) -> None:
    """What makes the numbers doubtful."""
    if report.without_usage:
        print(
            f"{report.without_usage} answers had no usage: their chunks are counted as tokens, "
            "their prompts not at all"
        )
    random_prompts = report.settings["prompt_tokens"] is not None
    if random_prompts and report.cached_tokens > _CACHED * report.prompt_tokens:
        print(
            f"{report.cached_tokens} of {report.prompt_tokens} prompt tokens were in the server's "
            "prefix cache, though prompts are random: has it seen this --seed before?"
        )
    if report.generator_cpu_share > _BUSY:
        print(
            "the generator was busy nearly all the time: it limits the load, and latencies "
            "include its own delay"
        )


def _loop(report: LoadReport) -> str:
    rate, clients = report.settings["rate"], report.settings["concurrency"]
    return f"closed loop, {clients} clients" if rate is None else f"open loop, {rate:g} requests/s"


def _percentiles(found: Distribution | None) -> str:
    if found is None:
        return "-"
    return f"{found.median:.2f} / {found.p90:.2f} / {found.p99:.2f}"


def _latency(name: str, found: Distribution | None) -> tuple[str, ...]:
    assert found is not None
    values = (found.mean, found.median, found.p90, found.p95, found.p99, found.max)
    return (name, *(f"{value:.2f}" for value in values))


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
