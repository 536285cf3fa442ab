"""What is read from a traceparent, what a line holds, and when it is written."""

from __future__ import annotations

import fcntl
import shutil
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hookspecs import EngineConfig, FinishReason, SamplingParams
from hookspecs.contracts.stats import FinishedRequest, TracerContext
from hookspecs.errors import PluginConfigError
from hookspecs.types.stats import FinishedRequestStats
from hypothesis import given
from hypothesis import strategies as st

from trace_json_lines.bounded_file import BoundedFile
from trace_json_lines.options import TraceJsonLinesOptions
from trace_json_lines.plugin import plugin
from trace_json_lines.trace_context import parse_traceparent
from trace_json_lines.tracer import JsonLinesTracer
from trace_json_lines.writer import MAX_QUEUED

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = f"00-{TRACE}-{SPAN}-01"


@pytest.mark.parametrize(
    "header",
    [
        PARENT,
        f"00-{TRACE}-{SPAN}-ff",
        f"cc-{TRACE}-{SPAN}-03",
        f"cc-{TRACE}-{SPAN}-01-what.comes-later",
    ],
)
def test_a_valid_traceparent_is_read(header: str) -> None:
    parent = parse_traceparent(header)
    assert parent is not None
    assert (parent.trace_id, parent.parent_id, parent.sampled) == (TRACE, SPAN, True)


def test_the_sampled_flag_is_the_lowest_bit() -> None:
    parent = parse_traceparent(f"00-{TRACE}-{SPAN}-fe")
    assert parent is not None
    assert not parent.sampled


@pytest.mark.parametrize(
    "header",
    [
        "",
        PARENT.upper(),
        PARENT + "-more",
        PARENT + "\n",
        f"ff-{TRACE}-{SPAN}-01",
        f"cc-{TRACE}-{SPAN}-01.more",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE[1:]}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-1",
        f"00-{TRACE}-{SPAN}",
        f"00-{TRACE[:-1]}\u0664-{SPAN}-01",
    ],
)
def test_a_traceparent_that_is_not_valid_names_no_trace(header: str) -> None:
    assert parse_traceparent(header) is None


@given(st.text())
def test_any_text_can_be_read(header: str) -> None:
    parse_traceparent(header)


def finished(**facts: Any) -> FinishedRequest:
    """An output that ended."""
    stats = FinishedRequestStats(
        request_id="r-1",
        finish_reason=FinishReason.STOP,
        num_prompt_tokens=12,
        num_generation_tokens=3,
        e2e_latency=2.5,
        queue_time=0.5,
        prefill_time=0.75,
        decode_time=1.0,
        time_to_first_token=1.5,
        n=2,
        tenant="acme",
        labels={"route": "/chat"},
    )
    return FinishedRequest(
        request_id="r-1",
        stats=msgspec.structs.replace(stats, **facts),
        index=1,
        params=SamplingParams(),
        trace_headers={"traceparent": PARENT},
        ended_at_ns=1_700_000_000_000_000_000,
    )


def subject(path: Path, **options: Any) -> JsonLinesTracer:
    checked = msgspec.convert({"path": str(path), **options}, TraceJsonLinesOptions)
    context = TracerContext(
        config=EngineConfig(), options=checked, name="trace-json-lines", model="m"
    )
    return JsonLinesTracer(context)


def test_a_line_holds_ids_times_and_counts(tmp_path: Path) -> None:
    path = tmp_path / "t"
    tracer = subject(path)
    tracer.on_request_finished(finished())
    tracer.close()
    (line,) = path.read_bytes().splitlines()
    assert msgspec.json.decode(line) == {
        "request_id": "r-1",
        "index": 1,
        "n": 2,
        "model": "m",
        "trace_id": TRACE,
        "parent_id": SPAN,
        "sampled": True,
        "started_at": 1_699_999_997.5,
        "ended_at": 1_700_000_000.0,
        "queue_s": 0.5,
        "prefill_s": 0.75,
        "decode_s": 1.0,
        "time_to_first_token_s": 1.5,
        "finish_reason": "stop",
        "num_prompt_tokens": 12,
        "num_cached_tokens": 0,
        "num_generation_tokens": 3,
        "num_preemptions": 0,
        "tenant": "acme",
        "labels": {"route": "/chat"},
    }


def test_without_a_trace_its_ids_are_null_and_breaks_stay_in_the_line(tmp_path: Path) -> None:
    path = tmp_path / "t"
    request = msgspec.structs.replace(finished(tenant="a\nb", queue_time=float("nan")))
    tracer = subject(path)
    tracer.on_request_finished(msgspec.structs.replace(request, trace_headers={}))
    tracer.close()
    (line,) = path.read_bytes().splitlines()
    record = msgspec.json.decode(line)
    assert [record[name] for name in ("trace_id", "parent_id", "sampled")] == [None] * 3
    assert (record["tenant"], record["queue_s"]) == ("a\nb", None)


def test_lines_are_written_at_once_or_when_it_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append, written = BoundedFile.append, threading.Event()

    def noted(file: BoundedFile, data: bytes) -> None:
        append(file, data)
        written.set()

    monkeypatch.setattr(BoundedFile, "append", noted)
    lazy, eager = subject(tmp_path / "b", flush=False), subject(tmp_path / "a")
    for tracer in (lazy, eager):
        tracer.on_request_finished(finished())
    assert written.wait(60)
    sizes = [(tmp_path / name).stat().st_size for name in "ab"]
    assert sizes[0] > 0 == sizes[1]
    for tracer in (eager, lazy):
        tracer.close()
        tracer.close()
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_outputs_do_not_wait_for_a_file_that_another_process_holds(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, extra = tmp_path / "t", 10
    tracer = subject(path)
    with path.open("rb") as holder:
        fcntl.flock(holder, fcntl.LOCK_EX)
        for _ in range(MAX_QUEUED + 1 + extra):
            tracer.on_request_finished(finished())
        # One line more than the queue holds may be in the hand of the thread.
        assert extra <= tracer.num_dropped <= extra + 1
    tracer.close()
    assert len(path.read_bytes().splitlines()) + tracer.num_dropped == MAX_QUEUED + 1 + extra
    assert f"{tracer.num_dropped} lines were dropped in all" in caplog.text


def test_the_end_does_not_wait_for_ever(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trace_json_lines.writer.CLOSE_S", 0.05)
    path = tmp_path / "t"
    tracer = subject(path)
    with path.open("rb") as holder:
        fcntl.flock(holder, fcntl.LOCK_EX)
        tracer.on_request_finished(finished())
        tracer.close()
    assert "could not be written within 0.05 s" in caplog.text


def test_a_write_that_failed_is_raised_once(tmp_path: Path) -> None:
    directory = tmp_path / "disk"
    directory.mkdir()
    tracer = subject(directory / "t")
    shutil.rmtree(directory)
    tracer.on_request_finished(finished())
    with pytest.raises(FileNotFoundError):
        tracer.close()
    tracer.close()


@pytest.mark.parametrize("flush", [True, False])
def test_lines_are_whole_in_files_of_bounded_size(tmp_path: Path, flush: bool) -> None:
    tracer = subject(tmp_path / "t", flush=flush, max_bytes=4096)
    for number in range(100):
        tracer.on_request_finished(finished(num_generation_tokens=number))
    tracer.close()
    files = [tmp_path / "t.1", tmp_path / "t"]
    assert sorted(tmp_path.iterdir()) == sorted(files)
    assert all(file.stat().st_size <= 4096 for file in files)
    lines = [line for file in files for line in file.read_bytes().splitlines()]
    numbers = [msgspec.json.decode(line)["num_generation_tokens"] for line in lines]
    assert numbers == list(range(100))[-len(numbers) :]
    assert len(numbers) > 4096 // len(lines[0])


def test_a_path_that_can_not_be_written_is_an_error_that_names_the_option(tmp_path: Path) -> None:
    with pytest.raises(PluginConfigError, match=r"plugins.options.trace-json-lines.path .*missing"):
        subject(tmp_path / "missing" / "t")


@pytest.mark.parametrize(
    "options",
    [{}, {"path": ""}, {"path": "t", "max_bytes": 4095}, {"path": "t", "flush": 1}, {"file": "t"}],
)
def test_options_that_are_wrong_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(options, TraceJsonLinesOptions)


def test_the_plugin_offers_the_tracer() -> None:
    (provider,) = plugin.register_tracers()
    assert provider.name == "trace-json-lines"
    assert provider.options is TraceJsonLinesOptions
