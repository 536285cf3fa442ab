"""Plugins across versions of the contract: an addition breaks none, and a break is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from framework.plugins.released import (
    damaged_releases,
    newest_release,
    released_versions,
    snapshot_version,
)
from framework.plugins.snapshot import build_snapshot, contract_problems
from hookspecs.version import API_VERSION
from tests.plugins.evolution import (
    NEW_FIELD,
    NEW_HOOK,
    NEW_METHOD,
    PRESENT,
    Edit,
    cli,
    evolved,
    released_as,
    snapshot,
)
from tests.plugins.evolution import python as run_python

MAJOR, MINOR = API_VERSION
NEXT_MINOR = released_as(MAJOR, MINOR + 1)
NEXT_MAJOR = released_as(MAJOR + 1, 0)
NEXT = f"{MAJOR}.{MINOR + 1}"
SAMPLE = "shortest-prompt-first"

RUN_THE_SAMPLE = """
import pathlib, framework, hookspecs
from hookspecs import EngineHooks, PluginInfo, SamplingParams, hookimpl

assert pathlib.Path(hookspecs.__file__).parents[1] == pathlib.Path.cwd(), hookspecs.__file__

class Recorder(EngineHooks):
    PLUGIN = PluginInfo(name="recorder", api=">=1.0,<2")

    def __init__(self):
        self.admitted, self.energy = [], set()

    @hookimpl
    def on_request_admitted(self, event):
        self.admitted.append(event.num_prompt_tokens)

    @hookimpl
    def on_step_finished(self, event):
        self.energy.add(event.energy_j)

recorder = Recorder()
config = {
    "model": {"name": "scripted"},
    "executor": {"worker": "scripted"},
    "scheduler": {"policies": ["shortest-prompt-first"], "max_num_seqs": 1},
    "plugins": {"options": {"shortest-prompt-first": {"aging_tokens_per_s": 0.01}}},
}
prompts = [[1] * length for length in (30, 10, 20)]
params = SamplingParams(max_tokens=2, temperature=0, detokenize=False)
with framework.launch(config, plugins=[recorder]) as engine:
    assert all(output.finished for output in engine.generate(prompts, params))
print(hookspecs.API_VERSION, recorder.admitted, recorder.energy)
"""


# Additions


@pytest.fixture(scope="module")
def next_minor(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A later minor version: a hook, a field and a method more."""
    edits = [NEW_HOOK, NEW_FIELD, NEW_METHOD, NEXT_MINOR]
    return evolved(tmp_path_factory.mktemp("minor"), edits)


def test_additions_are_a_minor_version(next_minor: Path) -> None:
    done = snapshot(next_minor, "--against", PRESENT)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_plugin_of_the_older_version_runs_with_the_newer(next_minor: Path) -> None:
    done = run_python(next_minor, "-c", RUN_THE_SAMPLE)
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()[-1]
    assert said == f"{(MAJOR, MINOR + 1)} [10, 20, 30] {{0.0}}"


def test_check_finds_nothing_and_tells_what_is_new_for_the_plugin(next_minor: Path) -> None:
    done = cli(next_minor, "plugins", "check", SAMPLE, "--against", PRESENT, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert (report["api"], report["findings"], report["deprecated"]) == (NEXT, [], [])
    against = report["against"]
    assert (against["old"], against["new"]) == (PRESENT, NEXT)
    [change] = against["changes"]
    assert change == {
        "kind": "additive",
        "subject": "contracts hookspecs.contracts.policy.SchedulingPolicy.on_idle",
        "text": "added",
    }
    assert against["others"] == 2
    assert "shortest_prompt_first.policy" in against["modules"]


def test_diff_compares_kept_versions(next_minor: Path) -> None:
    done = cli(next_minor, "plugins", "diff", PRESENT, NEXT, "--json")
    found = json.loads(done.stdout)
    assert found["bump"] == "minor" and len(found["changes"]) == 3
    done = cli(next_minor, "plugins", "diff", PRESENT, "7.0")
    assert done.returncode == 2
    assert "'7.0'" in done.stderr and f"{PRESENT}, {NEXT}." in done.stderr


def test_additions_without_a_new_version_are_refused(tmp_path: Path) -> None:
    root = evolved(tmp_path, [NEW_HOOK])
    done = snapshot(root, "--against", PRESENT)
    assert done.returncode == 1
    assert "need a minor version" in done.stderr and "on_queue_emptied: added" in done.stderr


# Breaks

NO_HOOK = Edit("hooks.py", "    def on_cache_reset(", "    def _on_cache_reset(")
REQUIRED_FIELD = NEW_FIELD._replace(new=NEW_FIELD.new.replace(" = 0.0", ""))
ABSTRACT_METHOD = Edit(
    "contracts/policy.py",
    NEW_METHOD.old,
    NEW_METHOD.new.replace("    def on_idle", "    @abstractmethod\n    def on_idle"),
)
IMPORT = Edit(
    "contracts/policy.py", "from abc import ABC\n", "from abc import ABC, abstractmethod\n"
)


@pytest.mark.parametrize(
    ("edits", "named"),
    [
        ([REQUIRED_FIELD], "StepFinished.energy_j: added"),
        ([NO_HOOK], "hooks on_cache_reset: removed"),
        ([ABSTRACT_METHOD, IMPORT], "SchedulingPolicy.on_idle: added"),
    ],
    ids=["required field", "removed hook", "abstract method"],
)
def test_a_break_needs_a_major_version(tmp_path: Path, edits: list[Edit], named: str) -> None:
    root = evolved(tmp_path, [*edits, NEXT_MINOR])
    done = snapshot(root, "--against", PRESENT)
    assert done.returncode == 1
    assert "need a major version" in done.stderr
    assert "  breaking: " in done.stderr and named in done.stderr


def test_a_major_version_may_break_and_tells_the_plugin(tmp_path: Path) -> None:
    root = evolved(tmp_path, [ABSTRACT_METHOD, IMPORT, REQUIRED_FIELD, NEXT_MAJOR])
    assert snapshot(root, "--against", PRESENT).returncode == 0

    done = cli(root, "plugins", "check", SAMPLE, "--against", PRESENT)
    assert done.returncode == 1
    assert f"written for contract version >=1.0,<2; this is {MAJOR + 1}.0" in done.stdout
    assert "1 change(s) concern shortest-prompt-first, 1 do not" in done.stdout
    assert "SchedulingPolicy.on_idle" in done.stdout and "StepFinished" not in done.stdout


def test_a_removal_that_was_not_announced_is_refused_even_in_a_major_version(
    tmp_path: Path,
) -> None:
    root = evolved(tmp_path, [NO_HOOK, NEXT_MAJOR])
    done = snapshot(root, "--against", PRESENT)
    assert done.returncode == 1
    assert "hooks on_cache_reset was removed without having been deprecated" in done.stderr


# Releases


def test_released_contracts_are_never_changed() -> None:
    assert damaged_releases() == []


def test_the_present_contract_follows_the_newest_release() -> None:
    """If this fails, a released contract was changed: raise API_VERSION, or undo the change."""
    assert contract_problems(newest_release(), build_snapshot()) == []


def test_a_release_is_kept_once_and_follows_the_code(tmp_path: Path) -> None:
    root = evolved(tmp_path, [NEW_HOOK, NEXT_MINOR])
    done = snapshot(root, "--release")
    assert done.returncode == 1 and "update it with --write" in done.stderr

    assert snapshot(root, "--write").returncode == 0
    assert snapshot(root, "--release").returncode == 0
    released = root / "hookspecs" / "released"
    assert damaged_releases(released) == []
    assert released_versions(released)[-2:] == [PRESENT, NEXT]
    newest = newest_release(released)
    assert newest is not None and snapshot_version(newest) == NEXT
    assert "on_queue_emptied" in newest["hooks"]

    done = snapshot(root, "--release")
    assert done.returncode == 1 and f"{NEXT} is released" in done.stderr


def test_a_change_of_a_released_file_is_found(tmp_path: Path) -> None:
    released = evolved(tmp_path, []) / "hookspecs" / "released"
    kept = released / f"{PRESENT}.json"
    kept.write_text(kept.read_text().replace('"stable"', '"internal"', 1))
    (released / f"{NEXT}.json").write_text(kept.read_text())
    changed, unlisted = sorted(damaged_releases(released))
    assert f"{PRESENT}.json was changed" in changed
    assert f"{NEXT}.json is not listed" in unlisted
    kept.unlink()
    assert any(f"{PRESENT}.json is listed" in wrong for wrong in damaged_releases(released))
    assert snapshot(tmp_path, "--release").returncode == 1
