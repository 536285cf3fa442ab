"""The installed tracer in a real engine, whose worker emits scripted tokens."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import framework
import pytest
from hookspecs import EngineHooks, PluginInfo, SamplingParams, hookimpl
from hookspecs.errors import PluginConfigError
from hookspecs.events import PluginFailed

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
PARAMS = SamplingParams(max_tokens=3, temperature=0, detokenize=False)


class FailureRecorder(EngineHooks):
    """Notes the plugins that failed."""

    PLUGIN = PluginInfo(name="failure-recorder", api=">=1.0,<2")

    def __init__(self) -> None:
        self.failures: list[PluginFailed] = []

    @hookimpl
    def on_plugin_failed(self, event: PluginFailed) -> None:
        """A plugin raised."""
        self.failures.append(event)


def config(path: Path) -> dict[str, Any]:
    return {
        "model": {"name": "scripted"},
        "executor": {"worker": "scripted"},
        "stats": {"loggers": [], "tracers": ["trace-json-lines"]},
        "plugins": {"options": {"trace-json-lines": {"path": str(path)}}},
    }


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_every_output_that_ended_has_a_line(tmp_path: Path) -> None:
    path = tmp_path / "t"
    two = SamplingParams(max_tokens=3, temperature=1, detokenize=False, n=2)
    with framework.launch(config(path)) as engine:
        llm = engine.engine
        llm.add_request("a", [1, 2, 3], PARAMS, trace_headers={"TraceParent": PARENT})
        llm.add_request("b", [1, 2], two, tenant="acme", labels={"k": "v"})
        while llm.has_unfinished_requests():
            llm.step()
    records = {(record["request_id"], record["index"]): record for record in read(path)}
    assert sorted(records) == [("a", 0), ("b", 0), ("b", 1)]
    first, second = records["a", 0], records["b", 1]
    assert first["trace_id"] == PARENT[3:35]
    assert first["finish_reason"] == "length"
    assert (first["num_prompt_tokens"], first["num_generation_tokens"]) == (3, 3)
    assert first["started_at"] <= first["ended_at"]
    assert all(first[name] >= 0 for name in ("queue_s", "prefill_s", "decode_s"))
    assert second["trace_id"] is None
    assert (second["tenant"], second["labels"], second["n"]) == ("acme", {"k": "v"}, 2)


def test_a_path_that_can_not_be_written_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(PluginConfigError, match="missing"):
        framework.launch(config(tmp_path / "missing" / "t"))


def test_a_path_that_is_not_given_stops_the_start() -> None:
    without = {**config(Path("t")), "plugins": {}}
    with pytest.raises(PluginConfigError, match="path"):
        framework.launch(without)


def test_a_disk_that_fails_later_detaches_it_and_requests_go_on(tmp_path: Path) -> None:
    recorder, directory = FailureRecorder(), tmp_path / "disk"
    directory.mkdir()
    with framework.launch(config(directory / "t"), plugins=[recorder]) as engine:
        shutil.rmtree(directory)
        for _ in range(2):
            (output,) = engine.generate([[1, 2, 3]], PARAMS)
            assert len(output.outputs[0].token_ids) == 3
    (failure,) = recorder.failures
    assert (failure.plugin, failure.action) == ("trace-json-lines", "detached")
    assert "FileNotFoundError" in failure.error
