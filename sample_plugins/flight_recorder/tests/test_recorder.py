"""Observers and files, without an engine."""

from __future__ import annotations

import json
import logging
import os
import stat
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hookspecs import EngineConfig
from hookspecs.contracts.base import PluginContext
from hookspecs.errors import PluginConfigError
from hookspecs.events import CacheReset, EngineFailed, EngineStopping, RequestAdmitted

from flight_recorder.options import FlightRecorderOptions
from flight_recorder.plugin import FlightRecorderPlugin, plugin

FAILED = EngineFailed(engine_index=3, error="StepError: no device", plugin="worker-cuda")


def recorder(directory: object, **options: Any) -> FlightRecorderPlugin:
    given = FlightRecorderOptions(directory=str(directory), **options)
    return plugin.configured(PluginContext(config=EngineConfig(), options=given))


def admitted(number: int) -> RequestAdmitted:
    return RequestAdmitted(
        request_id=f"r{number}", num_prompt_tokens=7, num_cached_tokens=0, queue_time=0.5
    )


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_record_has_the_failure_and_the_last_events(tmp_path: Path) -> None:
    subject = recorder(tmp_path / "made" / "here", max_events=3)
    for number in range(5):
        subject.on_request_admitted(admitted(number))
    assert list(tmp_path.iterdir()) == [], "nothing is written before an engine fails"
    subject.on_engine_failed(FAILED)
    (path,) = (tmp_path / "made" / "here").iterdir()
    head, *events = read(path)
    assert {key: head[key] for key in ("record", "engine_index", "reason", "plugin")} == {
        "record": "failed",
        "engine_index": 3,
        "reason": "StepError: no device",
        "plugin": "worker-cuda",
    }
    assert (head["num_events"], head["num_forgotten"]) == (3, 3)
    assert [event["event"] for event in events] == [
        "RequestAdmitted",
        "RequestAdmitted",
        "EngineFailed",
    ]
    assert [event.get("request_id") for event in events] == ["r3", "r4", None]
    assert events[0]["time"] <= events[2]["time"] <= head["time"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("at_stop", [False, True])
def test_an_orderly_stop_is_recorded_if_that_is_wanted(tmp_path: Path, at_stop: bool) -> None:
    subject = recorder(tmp_path, at_stop=at_stop)
    subject.on_engine_stopping(EngineStopping(engine_index=0, reason="shutdown"))
    heads = [read(path)[0] for path in tmp_path.iterdir()]
    assert [(head["record"], head["reason"]) for head in heads] == [
        ("stopped", "shutdown")
    ] * at_stop


def test_recorders_do_not_overwrite_each_other_and_the_oldest_go(tmp_path: Path) -> None:
    other = tmp_path / "flight-plan.jsonl"
    other.write_text("not a record")
    subjects = [recorder(tmp_path, max_files=4) for _ in range(2)]
    for number in range(8):
        subjects[number % 2].on_request_admitted(admitted(number))
        subjects[number % 2].on_engine_failed(FAILED)
    other.unlink()
    records = [read(path) for path in sorted(tmp_path.iterdir())]
    last = [record[-2]["request_id"] for record in records]
    assert last == ["r4", "r5", "r6", "r7"], "records of several recorders sort by time"


def test_a_directory_that_can_not_be_written_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    subject = recorder(tmp_path / "file")
    (tmp_path / "file").write_text("")
    for _ in range(3):
        subject.on_engine_failed(FAILED)
    (said,) = caplog.records
    assert said.levelno == logging.ERROR
    assert "engine 3 could not be written: " in said.getMessage()


def test_a_directory_that_can_not_be_used_stops_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for path, said in (
        (tmp_path / "file", "is no directory"),
        (tmp_path / "file" / "below", "Not a directory"),
        (tmp_path / "link" / "below", "is a link to nothing"),
        (tmp_path / ("x" * 300), "too long"),
        (tmp_path / "a\0b", "null"),
    ):
        with pytest.raises(PluginConfigError, match=f"flight-recorder.directory is .*{said}"):
            recorder(path)
    # The user who runs the tests may be one whom no permission stops.
    monkeypatch.setattr("flight_recorder.directory.os.access", lambda *_: False)
    with pytest.raises(PluginConfigError, match=r"can not be written"):
        recorder(tmp_path / "new" / "one")
    assert not (tmp_path / "new").exists()


def test_a_full_disk_is_logged_and_what_was_written_stays(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    monkeypatch.setattr("flight_recorder.directory.os.open", lambda *_: full)
    recorder(tmp_path).on_engine_failed(FAILED)
    assert "No space left on device" in caplog.text


def test_without_a_directory_nothing_is_kept_or_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    context = PluginContext(config=EngineConfig(), options=FlightRecorderOptions())
    subject = plugin.configured(context)
    subject.on_cache_reset(CacheReset(engine_index=0))
    subject.on_engine_failed(FAILED)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "options",
    [{"directory": ""}, {"max_events": 0}, {"max_events": 100_001}, {"max_files": 0}, {"at": 1}],
)
def test_options_out_of_bounds_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError, match=next(iter(options))):
        msgspec.convert(options, FlightRecorderOptions)
