"""`framework conform` over plugins that do not let the process live: the verdict is made
elsewhere."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PLUGIN = """
import atexit, os, sys, threading, time
from hookspecs import EngineHooks, PluginInfo, hookimpl

class Rude(EngineHooks):
    PLUGIN = PluginInfo(name="rude", api=">=1.0,<2")

    @hookimpl
    def on_engine_started(self, event):
        {hook}

plugin = Rude()
{module}
"""


def conform(directory: Path, *, hook: str = "pass", module: str = "") -> tuple[int, str, str]:
    """Exit code, what was printed, and the verdict in the report, if there is one."""
    source = directory / "site"
    metadata = source / "rude-1.0.dist-info"
    metadata.mkdir(parents=True)
    (source / "rude.py").write_text(PLUGIN.format(hook=hook, module=module))
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: rude\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[framework.plugins]\nrude = rude:plugin\n")
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-m", "framework", "conform", "rude", "--report", "report"],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(source), str(root)])},
        capture_output=True,
        text=True,
    )
    file = directory / "report" / "conform.json"
    verdict = json.loads(file.read_text())["verdict"] if file.exists() else ""
    return done.returncode, done.stdout + done.stderr, verdict


@pytest.mark.parametrize(
    "hook",
    [
        "os._exit(0)",
        "os.kill(os.getpid(), 9)",
        "import pytest; pytest.exit('done', returncode=0)",
        "raise KeyboardInterrupt",
    ],
)
def test_what_ends_the_process_has_failed(tmp_path: Path, hook: str) -> None:
    code, said, verdict = conform(tmp_path, hook=hook)
    assert code == 1, said
    assert verdict == "not conformant 1.0"
    assert "plugin::test_an_engine_starts_and_stops_with_it" in said


def test_what_ends_the_process_when_it_is_imported(tmp_path: Path) -> None:
    code, said, verdict = conform(tmp_path, module="os._exit(0)")
    assert (code, verdict) == (1, "")
    assert "the process that loads plugin 'rude' to test it ended with exit code 0" in said


@pytest.mark.parametrize(
    "module",
    ["atexit.register(os._exit, 0)", "atexit.register(time.sleep, 1e6)"],
)
def test_what_happens_at_the_end_has_no_say(tmp_path: Path, module: str) -> None:
    code, said, verdict = conform(tmp_path, hook="raise ValueError('no')", module=module)
    assert (code, verdict) == (1, "not conformant 1.0"), said


def test_other_plugins_that_are_installed_are_not_imported(tmp_path: Path) -> None:
    other = tmp_path / "site" / "deadly-1.0.dist-info"
    other.mkdir(parents=True)
    (tmp_path / "site" / "deadly.py").write_text("import os; os._exit(0)")
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: deadly\nVersion: 1.0\n")
    (other / "entry_points.txt").write_text("[framework.plugins]\ndeadly = deadly:plugin\n")
    code, said, verdict = conform(tmp_path)
    assert (code, verdict) == (0, "conformant 1.0"), said
