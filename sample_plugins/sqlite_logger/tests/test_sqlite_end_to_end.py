"""The installed stat logger in real engines, whose worker emits scripted tokens."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import subprocess
import sysconfig
import urllib.request
from contextlib import closing
from pathlib import Path
from typing import Any

import framework
import pytest
from framework import SamplingParams
from hookspecs import EngineHooks, PluginInfo, hookimpl
from hookspecs.errors import PluginConfigError
from hookspecs.events import PluginFailed

PARAMS = SamplingParams(max_tokens=3, temperature=0, detokenize=False)


def config(path: Path) -> dict[str, Any]:
    return {
        "model": {"name": "scripted"},
        "executor": {"worker": "scripted"},
        "stats": {"loggers": ["sqlite"]},
        "plugins": {"options": {"sqlite": {"path": str(path)}}},
    }


def select(path: Path, query: str) -> list[Any]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(query).fetchall()


def test_every_output_that_ended_has_a_row(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    two = SamplingParams(max_tokens=3, temperature=1, detokenize=False, n=2)
    with framework.launch(config(path)) as engine:
        engine.generate([[1, 2, 3]] * 2, PARAMS, tenant="acme", labels={"k": "v"})
        engine.generate([[1, 2]], two)
    found = select(path, "SELECT tenant, labels, n, finish_reason FROM finished_requests")
    assert sorted(found) == [
        ("", "{}", 2, "length"),
        ("", "{}", 2, "length"),
        ("acme", '{"k": "v"}', 1, "length"),
        ("acme", '{"k": "v"}', 1, "length"),
    ]
    # The last report comes with the end.
    totals = "SELECT sum(num_finished), sum(num_generation_tokens) FROM intervals"
    assert select(path, totals) == [(4, 12)]
    assert select(path, "SELECT model, closed_at > started_at FROM processes") == [("scripted", 1)]


def test_a_path_that_can_not_be_used_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(PluginConfigError, match=r"plugins.options.sqlite.path"):
        framework.launch(config(tmp_path / "missing" / "s.db"))


class FailureRecorder(EngineHooks):
    """Notes the plugins that failed."""

    PLUGIN = PluginInfo(name="failure-recorder", api=">=1.0,<2")

    def __init__(self) -> None:
        self.failures: list[PluginFailed] = []

    @hookimpl
    def on_plugin_failed(self, event: PluginFailed) -> None:
        """A plugin raised."""
        self.failures.append(event)


def test_a_database_that_breaks_later_detaches_it_and_requests_go_on(tmp_path: Path) -> None:
    path, recorder = tmp_path / "s.db", FailureRecorder()
    with framework.launch(config(path), plugins=[recorder]) as engine:
        select(path, "DROP TABLE finished_requests")
        for _ in range(2):
            (output,) = engine.generate([[1, 2, 3]], PARAMS)
            assert len(output.outputs[0].token_ids) == 3
    (failure,) = recorder.failures
    assert (failure.plugin, failure.action) == ("sqlite", "detached")
    assert "finished_requests" in failure.error


def test_the_front_ends_of_a_server_share_a_database(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    program = str(Path(sysconfig.get_path("scripts"), "framework"))
    command = [
        *(program, "serve", "scripted", "--executor.worker=scripted", "--serving.port=0"),
        *("--serving.processes=2", "--stats.loggers=sqlite"),
        f"--plugins.options.sqlite.path={path}",
    ]
    environ = {k: v for k, v in os.environ.items() if not k.startswith("FRAMEWORK_")}
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environ
    )
    assert process.stdout is not None
    said: list[str] = []
    try:
        for line in process.stdout:
            said.append(line)
            if found := re.search(r"serving .*(http://\S+) ", line):
                break
        else:
            pytest.fail("".join(said))
        body = json.dumps({"model": "scripted", "prompt": [1, 2, 3], "max_tokens": 3}).encode()
        for _ in range(20):
            request = urllib.request.Request(
                f"{found[1]}/v1/completions", body, {"content-type": "application/json"}
            )
            with urllib.request.urlopen(request, timeout=30) as answer:
                assert answer.status == 200
    finally:
        process.terminate()
        process.communicate(timeout=60)
    assert process.returncode == 0
    indexes = select(path, "SELECT process_index, num_dropped FROM processes ORDER BY 1")
    assert indexes == [(0, 0), (1, 0)]
    assert select(path, "SELECT count(*) FROM processes WHERE closed_at IS NULL") == [(0,)]
    assert select(path, "SELECT count(*) FROM finished_requests") == [(20,)]
    assert select(path, "SELECT sum(num_finished) FROM intervals") == [(20,)]
