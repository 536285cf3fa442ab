"""The stat logger `json_lines`: what it writes, when, and how it fails."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from builtin_plugins.stats_json_lines.json_lines import JsonLinesStatLogger
from builtin_plugins.stats_json_lines.options import Every, JsonLinesOptions
from builtin_plugins.stats_json_lines.plugin import plugin
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

    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


WALL = 1_700_000_000.0


def make(path: Path, every: Every = Every.BOTH, clock: Clock | None = None) -> JsonLinesStatLogger:
    context = StatLoggerContext(
        config=EngineConfig(), options=JsonLinesOptions(path=str(path), every=every)
    )
    return JsonLinesStatLogger(context, lambda: WALL, clock or Clock(0.0))


def read(path: Path) -> list[dict[str, Any]]:
    text = path.read_text("utf-8")
    assert text == "" or text.endswith("\n")
    return [json.loads(line) for line in text.splitlines()]


def finished(request_id: str = "a", **changes: Any) -> FinishedRequestStats:
    stats = FinishedRequestStats(
        request_id=request_id,
        finish_reason=FinishReason.LENGTH,
        num_prompt_tokens=5,
        num_generation_tokens=3,
    )
    return msgspec.structs.replace(stats, **changes)


def batch(*stats: FinishedRequestStats) -> IterationStats:
    return IterationStats(timestamp=0.0, finished=list(stats))


def test_a_finished_request_is_written_at_once_with_all_fields(tmp_path: Path) -> None:
    path = tmp_path / "stats.jsonl"
    stats_logger = make(path, Every.FINISHED)
    stats_logger.record(
        None, batch(finished(tenant="t\n", labels={"k": "é"}, e2e_latency=1.5)), engine_index=2
    )
    (line,) = read(path)
    assert set(line) == {"kind", "time", "engine_index", *FinishedRequestStats.__struct_fields__}
    assert line["kind"] == "finished"
    assert line["time"] == WALL
    assert line["engine_index"] == 2
    assert line["finish_reason"] == "length"
    assert line["e2e_latency"] == 1.5
    assert line["tenant"] == "t\n"
    assert line["labels"] == {"k": "é"}
    assert line["max_tokens"] is None
    stats_logger.close()


def test_a_report_sums_its_interval(tmp_path: Path) -> None:
    path, clock = tmp_path / "stats.jsonl", Clock(50.0)
    stats_logger = make(path, Every.REPORT, clock)
    for first in (0.5, 1.5):
        stats_logger.record(
            SchedulerStats(
                num_running=2,
                num_waiting=1,
                num_preempted=1,
                kv_blocks_total=10,
                kv_blocks_free=5,
                prefix_cache=PrefixCacheStats(requests=1, queries=8, hits=4),
            ),
            IterationStats(
                timestamp=0.0,
                num_prompt_tokens=8,
                num_cached_tokens=4,
                num_generation_tokens=3,
                time_to_first_token=[first],
                inter_token_latency=[0.1, 0.3],
                finished=[finished()],
            ),
        )
    clock.now += 10.0
    stats_logger.report()
    (line,) = read(path)
    assert line.pop("mean_inter_token_latency") == pytest.approx(0.2)
    assert line == {
        "kind": "report",
        "time": WALL,
        "interval_s": 10.0,
        "num_prompt_tokens": 16,
        "num_cached_tokens": 8,
        "num_generation_tokens": 6,
        "num_finished": 2,
        "mean_time_to_first_token": 1.0,
        "num_preempted": 2,
        "prefix_cache_queries": 16,
        "prefix_cache_hits": 8,
        "num_running": 2,
        "num_waiting": 1,
        "kv_cache_usage": 0.5,
    }
    stats_logger.close()


def test_the_next_interval_starts_at_zero_and_keeps_the_state(tmp_path: Path) -> None:
    path, clock = tmp_path / "stats.jsonl", Clock(0.0)
    stats_logger = make(path, Every.REPORT, clock)
    stats_logger.record(
        SchedulerStats(num_waiting=3, num_preempted=1),
        IterationStats(timestamp=0.0, num_generation_tokens=4, time_to_first_token=[1.0]),
    )
    clock.now += 10.0
    stats_logger.report()
    clock.now += 5.0
    stats_logger.report()
    second = read(path)[1]
    assert second["interval_s"] == 5.0
    assert second["num_generation_tokens"] == second["num_preempted"] == 0
    assert second["mean_time_to_first_token"] is None
    assert second["num_waiting"] == 3
    stats_logger.close()


def test_engines_are_summed(tmp_path: Path) -> None:
    path = tmp_path / "stats.jsonl"
    stats_logger = make(path, Every.REPORT)
    for index, used in enumerate((0, 10)):
        stats_logger.record(
            SchedulerStats(num_running=1, kv_blocks_total=10, kv_blocks_free=10 - used), None, index
        )
    stats_logger.report()
    (line,) = read(path)
    assert (line["num_running"], line["kv_cache_usage"]) == (2, 0.5)
    stats_logger.close()


@pytest.mark.parametrize(
    ("every", "kinds"),
    [
        (Every.FINISHED, ["finished", "finished"]),
        (Every.REPORT, ["report"]),
        (Every.BOTH, ["finished", "finished", "report"]),
    ],
)
def test_every_chooses_the_kinds(tmp_path: Path, every: Every, kinds: list[str]) -> None:
    path = tmp_path / "stats.jsonl"
    stats_logger = make(path, every)
    stats_logger.record(None, batch(finished("a"), finished("b")))
    stats_logger.report()
    stats_logger.close()
    assert [line["kind"] for line in read(path)] == kinds


def test_appends_to_what_is_there(tmp_path: Path) -> None:
    path = tmp_path / "stats.jsonl"
    for request_id in ("a", "b"):
        stats_logger = make(path, Every.FINISHED)
        stats_logger.record(None, batch(finished(request_id)))
        stats_logger.close()
    assert [line["request_id"] for line in read(path)] == ["a", "b"]


def test_two_front_ends_share_a_file_and_a_truncation(tmp_path: Path) -> None:
    path = tmp_path / "stats.jsonl"
    one, two = make(path, Every.FINISHED), make(path, Every.FINISHED)
    one.record(None, batch(finished("a" * 20_000)))
    two.record(None, batch(finished("b" * 20_000)))
    assert [line["request_id"][0] for line in read(path)] == ["a", "b"]
    path.write_bytes(b"")
    one.record(None, batch(finished("c")))
    assert [line["request_id"] for line in read(path)] == ["c"]
    one.close()
    two.close()


def test_a_missing_directory_fails_at_start(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="absent"):
        make(tmp_path / "absent" / "stats.jsonl")


def test_a_write_error_is_raised() -> None:
    stats_logger = make(Path("/dev/full"))
    with pytest.raises(OSError, match="space"):
        stats_logger.record(None, batch(finished()))
    with pytest.raises(OSError, match="space"):
        stats_logger.report()
    stats_logger.close()


def test_nothing_is_written_after_close(tmp_path: Path) -> None:
    stats_logger = make(tmp_path / "stats.jsonl")
    stats_logger.close()
    with pytest.raises(ValueError, match="closed"):
        stats_logger.record(None, batch(finished()))


def test_options_are_checked() -> None:
    assert msgspec.convert({}, JsonLinesOptions) == JsonLinesOptions(
        path="framework-stats.jsonl", every=Every.BOTH
    )
    for wrong in ({"path": ""}, {"every": "step"}, {"file": "x"}):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert(wrong, JsonLinesOptions)


def test_plugin_offers_json_lines() -> None:
    (provider,) = plugin.register_stat_loggers()
    assert provider.name == "json_lines"
    assert provider.options is JsonLinesOptions
