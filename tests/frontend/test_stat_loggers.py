"""The stat logger manager: fan-out, isolation, reports."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from framework.frontend.stat_loggers import StatLoggerManager
from hookspecs.contracts.stats import Exposition
from hookspecs.events import PluginFailed
from hookspecs.types.sampling import SamplingParams
from hookspecs.types.stats import IterationStats, SchedulerStats


def test_a_raising_logger_is_detached(make: Any, bytes_of: Any, caplog: Any) -> None:
    told: list[PluginFailed] = []
    rig = make(filters={"on_plugin_failed": told.append})
    other = type(rig.recorder)()
    rig.stats._sinks["other"] = other
    rig.recorder.broken = True
    rig.says(bytes_of("abc"))
    (output,) = rig.llm.generate("p", SamplingParams())
    assert output.outputs[0].text == "abc"
    assert rig.stats.names == ["other"]
    assert rig.stats.failures == {"recorder": 1}
    assert rig.recorder.closed == 1
    assert len(other.iterations) == 3
    assert [(event.plugin, event.action) for event in told] == [("recorder", "detached")]
    assert "disk full" in caplog.text


@pytest.mark.parametrize("error", [SystemExit, asyncio.CancelledError, GeneratorExit])
def test_what_is_no_exception_is_a_loggers_failure(
    make: Any, bytes_of: Any, error: type[BaseException]
) -> None:
    rig = make()

    def fail(*_: Any) -> Any:
        raise error

    rig.recorder.record = rig.recorder.close = fail
    rig.says(bytes_of("abc"))
    (output,) = rig.llm.generate("p", SamplingParams())
    assert output.outputs[0].text == "abc"
    assert rig.stats.names == []


def test_the_users_interrupt_passes_through_a_logger(make: Any) -> None:
    rig = make()

    def fail(*_: Any) -> Any:
        raise KeyboardInterrupt

    rig.recorder.exposition = fail
    with pytest.raises(KeyboardInterrupt):
        rig.stats.expositions()
    assert rig.stats.names == ["recorder"]


def test_reports_each_interval_and_at_the_end(make: Any) -> None:
    rig = make()
    now = [0.0]
    manager = StatLoggerManager(
        {"a": rig.recorder}, calls=rig.inputs._calls, interval_s=10.0, clock=lambda: now[0]
    )
    reports = []
    for time in (1.0, 9.9, 10.0, 15.0, 20.0, 41.0):
        now[0] = time
        manager.record(SchedulerStats(), IterationStats(timestamp=time))
        reports.append(rig.recorder.reports)
    assert reports == [0, 0, 1, 1, 2, 3]
    manager.close()
    manager.close()
    assert (rig.recorder.reports, rig.recorder.closed) == (4, 1)


def text(content_type: Any, body: Any) -> Exposition:
    return Exposition(content_type=content_type, body=body)


@pytest.mark.parametrize(
    "wrong",
    [
        "text",
        b"text",
        0,
        [],
        text(None, b""),
        text(b"text/plain", b""),
        text("", b""),
        text("text/plain\r\nx: y", b""),
        text("text/plain\n", b""),
        text("text/pläin", b""),
        text("text/\ud800", b""),
        text("text/plain", "a"),
        text("text/plain", None),
        text("text/plain", bytearray()),
    ],
)
def test_a_logger_whose_exposition_is_wrong_is_detached(make: Any, wrong: Any, caplog: Any) -> None:
    rig = make()
    other = type(rig.recorder)()
    rig.stats._sinks["other"] = other
    good = text("text/plain; version=0.0.4", b"a 1")
    rig.recorder.exposition = lambda: wrong
    other.exposition = lambda: good
    assert rig.stats.expositions() == [good]
    assert rig.stats.names == ["other"]
    assert "'recorder'" in caplog.text
    assert "exposition" in caplog.text


def test_a_logger_without_exposition_stays(make: Any) -> None:
    rig = make()
    rig.recorder.exposition = lambda: None
    assert rig.stats.expositions() == []
    assert rig.stats.names == ["recorder"]
