"""The installed plugin in real engines, whose worker fails where it is told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import framework
import pytest
from framework import SamplingParams
from hookspecs import EngineHooks, PluginInfo, hookimpl
from hookspecs.errors import FrameworkError
from hookspecs.events import CacheReset


class Clumsy(EngineHooks):
    """Another plugin, which raises."""

    PLUGIN = PluginInfo(name="clumsy", api=">=1.0,<2")

    @hookimpl
    def on_cache_reset(self, event: CacheReset) -> None:
        raise ValueError("no cache")


def config(directory: Path, **sections: Any) -> dict[str, Any]:
    options = {"directory": str(directory), "at_stop": True}
    return {
        "model": {"name": "scripted"},
        "executor": {"worker": "scripted"},
        "stats": {"loggers": []},
        "plugins": {"options": {"flight-recorder": options}},
        **sections,
    }


def params(**script: Any) -> SamplingParams:
    extensions = {"scripted": script} if script else {}
    return SamplingParams(max_tokens=3, temperature=0, detokenize=False, extensions=extensions)


def records(directory: Path) -> list[list[dict[str, Any]]]:
    return [
        [json.loads(line) for line in path.read_text().splitlines()]
        for path in sorted(directory.iterdir())
    ]


def test_every_sort_of_event_is_recorded(tmp_path: Path) -> None:
    with framework.launch(config(tmp_path), plugins=[Clumsy()]) as engine:
        list(engine.generate([[1, 2, 3]], params(), tenant="acme"))
        engine.reset_prefix_cache()
    (record,) = records(tmp_path)
    head, *events = record
    assert (head["record"], head["engine_index"], head["num_forgotten"]) == ("stopped", 0, 0)
    assert head["num_events"] == len(events)
    assert [event["event"] for event in events] == [
        "WorkerReady",
        "EngineStarted",
        "RequestAdmitted",
        *["StepFinished"] * 2,
        "RequestFinished",
        "StepFinished",
        "CacheReset",
        "PluginFailed",
        "EngineStopping",
    ]
    assert [event["tenant"] for event in events if "tenant" in event] == ["acme", "acme"]
    assert [event["plugin"] for event in events if "plugin" in event] == ["clumsy"]


@pytest.mark.parametrize("process", ["in_process", "separate"])
def test_the_record_of_a_failure_ends_with_it(tmp_path: Path, process: str) -> None:
    settings = config(tmp_path, engine={"process": process, "debug": True})
    with framework.launch(settings) as engine, pytest.raises(FrameworkError):
        list(engine.generate([[1, 2, 3]], params(raise_at=1)))
    (record,) = records(tmp_path)
    head, *events = record
    assert (head["record"], head["plugin"]) == ("failed", "worker-scripted")
    assert events[-1]["event"] == "EngineFailed"
    assert events[-1]["error"] == head["reason"]
    admitted = {e["request_id"] for e in events if e["event"] == "RequestAdmitted"}
    finished = {e["request_id"] for e in events if e["event"] == "RequestFinished"}
    assert len(admitted - finished) == 1, "the request that was running can be told"


def test_each_engine_of_a_process_has_a_record_of_its_own(tmp_path: Path) -> None:
    with framework.launch(config(tmp_path)) as one, framework.launch(config(tmp_path)):
        list(one.generate([[1, 2, 3]], params()))
    steps = [
        sum(event["event"] == "StepFinished" for event in events)
        for _, *events in records(tmp_path)
    ]
    assert sorted(steps) == [0, 3]
