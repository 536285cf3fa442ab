"""The installed plugin in a real engine, whose worker emits scripted tokens."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import framework
import pytest
from hookspecs import EngineHooks, PluginInfo, ProcessRole, SamplingParams, hookimpl
from hookspecs.errors import PluginConfigError
from hookspecs.events import PluginFailed

PROMPTS = [[1, 2, 3, 4, 5, 6, 7, 8]]
PARAMS = SamplingParams(max_tokens=5, temperature=0, detokenize=False)


class FailureRecorder(EngineHooks):
    """Notes the plugins that failed."""

    PLUGIN = PluginInfo(name="failure-recorder", api=">=1.0,<2")

    def __init__(self) -> None:
        self.failures: list[PluginFailed] = []

    @hookimpl
    def on_plugin_failed(self, event: PluginFailed) -> None:
        """A plugin raised."""
        self.failures.append(event)


def config(process: str = "in_process", *, selected: bool = True, **options: Any) -> dict[str, Any]:
    return {
        "model": {"name": "scripted"},
        "executor": {"worker": "scripted"},
        "engine": {"process": process, "side_channels": ["step-times"] if selected else []},
        "stats": {"loggers": []},
        "plugins": {"options": {"step-times": options}},
    }


def generate(settings: dict[str, Any], *plugins: object) -> list[list[int]]:
    with framework.launch(settings, plugins=plugins) as engine:
        outputs = list(engine.generate(PROMPTS, PARAMS))
    return [list(output.outputs[0].token_ids) for output in outputs]


@pytest.mark.parametrize("process", ["in_process", "separate"])
def test_the_file_tells_where_the_time_of_all_steps_went(tmp_path: Path, process: str) -> None:
    path = tmp_path / "steps"
    plain = generate(config(selected=False))
    assert generate(config(process, path=str(path), every_steps=3)) == plain
    reports = [json.loads(line) for line in path.read_text().splitlines()]
    # one step of the prompt, four of decoding
    assert [(r["first_step"], r["last_step"], r["num_steps"]) for r in reports] == [
        (1, 3, 3),
        (4, 5, 2),
    ]
    first = reports[0]["kinds"]
    assert first["prefill"]["prefill_tokens"] == 8
    assert first["prefill"]["rows"] == 1
    assert (first["decode"]["steps"], first["decode"]["decode_tokens"]) == (2, 2)
    assert reports[1]["kinds"].keys() == {"decode"}
    for report in reports:
        assert 0 < report["core_share"] < 1
        for totals in report["kinds"].values():
            assert totals["worker_s"] > 0 and totals["core_s"] > 0
            assert totals["max_worker_s"] <= totals["worker_s"]


def test_without_a_path_there_is_a_table_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "framework"):
        generate(config())
    (said,) = [r.getMessage() for r in caplog.records if r.name == "framework.step_times"]
    assert said.startswith("step times of engine 0, steps 1 to 5: ")
    assert [line.split()[0] for line in said.splitlines()[2:]] == ["decode", "prefill"]


def test_a_path_that_can_not_be_written_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(PluginConfigError, match="missing"):
        framework.launch(config(path=str(tmp_path / "missing" / "t")))


def test_a_disk_that_fails_later_detaches_the_half_and_requests_go_on() -> None:
    recorder = FailureRecorder()
    settings = config(path="/dev/full", every_steps=2)
    assert generate(settings, recorder) == generate(config(selected=False))
    (failure,) = recorder.failures
    assert (failure.plugin, failure.action) == ("step-times", "detached")
    assert (failure.role, "OSError" in failure.error) == (ProcessRole.CORE, True)


def test_the_plugin_is_used_only_where_it_is_selected() -> None:
    for selected, state in ((False, "unused"), (True, "active")):
        with framework.launch(config(selected=selected)) as engine:
            states = {report.name: str(report.state) for report in engine.plugins()}
        assert states["step-times"] == state
