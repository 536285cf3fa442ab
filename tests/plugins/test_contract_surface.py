"""That the snapshot holds all that plugins use, and what a change of each part of it means."""

from __future__ import annotations

import ast
import copy
import importlib
import inspect
import json
import pkgutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import framework.sdk
import hookspecs
from framework.plugins.diff import Bump, diff_snapshots, required_bump
from framework.plugins.released import snapshot_text
from framework.plugins.snapshot import LEFT_OUT, build_snapshot
from framework.plugins.subjects import CLASS_SECTIONS, NAME_SECTIONS, exists
from tests.plugins.evolution import NEW_FIELD, PRESENT, Edit, evolved, released_as, snapshot

BUMPS = {"additive": Bump.MINOR, "value": Bump.MINOR, "breaking": Bump.MAJOR}


@pytest.fixture
def old() -> dict[str, Any]:
    return build_snapshot()


def modules(package: Any) -> Iterator[str]:
    yield from (
        one.name
        for one in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
        if one.name not in LEFT_OUT
    )


def test_every_exported_name_is_recorded(old: dict[str, Any]) -> None:
    recorded = {path for section in (*CLASS_SECTIONS, *NAME_SECTIONS) for path in old[section]}
    for name in ["hookspecs", "framework", *modules(hookspecs), *modules(framework.sdk)]:
        module = importlib.import_module(name)
        exported = {f"{name}.{each}" for each in getattr(module, "__all__", ())}
        assert exported <= recorded, name


def test_signatures_of_the_sdk_are_those_of_its_functions(old: dict[str, Any]) -> None:
    """They are read from the source."""
    for path, signature in old["functions"].items():
        module, _, name = path.rpartition(".")
        if module.startswith("framework.sdk"):
            function = getattr(importlib.import_module(module), name)
            written = ast.parse(f"def f{signature}: ...").body[0]
            assert isinstance(written, ast.FunctionDef)
            names = [one.arg for one in (*written.args.args, *written.args.kwonlyargs)]
            assert names == list(inspect.signature(function).parameters), path


def test_members_of_the_contract_are_recorded(old: dict[str, Any]) -> None:
    for subject in (
        "contracts hookspecs.hooks.EngineHooks.configured",
        "contracts hookspecs.contracts.engine_command.EngineCommand.Arguments",
        "contracts hookspecs.contracts.side_channel.SideChannel.Message",
        "contracts hookspecs.contracts.scheduler.Scheduler.capabilities",
        "contracts hookspecs.contracts.kv_cache.EvictionPolicy.__len__",
        "errors hookspecs.errors.InvalidRequestError.__init__",
        "classes framework.sdk.sleep.SleepState.check_step",
    ):
        assert exists(old, subject), subject
    assert not exists(old, "contracts hookspecs.hooks.EngineHooks.on_cache_reset")


def test_a_snapshot_is_the_same_in_every_process(old: dict[str, Any]) -> None:
    """No addresses, no order of sets, and nothing of it needs torch."""
    code = (
        "import sys\nfrom framework.plugins.snapshot import build_snapshot\n"
        "from framework.plugins.released import snapshot_text\n"
        "print(snapshot_text(build_snapshot()), end='')\nassert 'torch' not in sys.modules"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(hookspecs.__file__).parents[1],
    )
    assert done.stdout == snapshot_text(old)
    assert json.loads(done.stdout) == json.loads(snapshot_text(old))


HOOKS = ("contracts", "hookspecs.hooks.EngineHooks", "methods")
COMMAND = ("contracts", "hookspecs.contracts.engine_command.EngineCommand", "attributes")
LENT = ("contracts", "hookspecs.contracts.policy.SchedulerView", "attributes")
FAILURE = ("structs", "hookspecs.types.step.RowFailure")
ROW = ("structs", "hookspecs.types.step.ScheduledRow")
EVENT = ("structs", "hookspecs.events.StepFinished")
ERROR = ("errors", "hookspecs.errors.InvalidRequestError")
LIMIT = ("constants", "hookspecs.contracts.side_channel.MAX_SIDE_CHANNEL_BYTES")
SLEEP = ("classes", "framework.sdk.sleep.SleepState", "methods")


@pytest.mark.parametrize(
    ("path", "value", "kind", "said"),
    [
        ((*HOOKS, "configured"), ..., "breaking", "EngineHooks.configured: removed"),
        ((*COMMAND, "Arguments"), ..., "breaking", "EngineCommand.Arguments: removed"),
        ((*COMMAND, "Arguments", "type"), "ClassVar[Any]", "breaking", "is ClassVar[Any]"),
        ((*COMMAND, "Arguments", "default"), ..., "breaking", "lost its default"),
        ((*COMMAND, "NEW"), {"type": "ClassVar[int]"}, "breaking", "NEW: added"),
        ((*COMMAND, "NEW"), {"type": "ClassVar[int]", "default": "0"}, "additive", "NEW: added"),
        ((*LENT, "new"), {"type": "int"}, "additive", "new: added"),
        ((*FAILURE, "positional"), lambda old: old[::-1], "breaking", "by position: was message,"),
        ((*FAILURE, "positional"), lambda old: ["x", *old], "breaking", "is x, message"),
        ((*FAILURE, "positional"), lambda old: [], "breaking", "is none"),
        ((*FAILURE, "frozen"), False, "breaking", "frozen was True, is False"),
        ((*FAILURE, "fields", "poisoned", "default"), "False", "breaking", "was True, is False"),
        ((*ROW, "positional"), lambda old: [*old, "x"], "breaking", "samples, x"),
        ((*ERROR, "bases"), lambda old: old[1:], "breaking", "no longer a RequestError"),
        ((*ERROR, "bases"), lambda old: [*old, "X"], "additive", "also a X"),
        ((*ERROR, "methods", "__init__", "signature"), "()", "breaking", "signature was"),
        ((*LIMIT, "value"), "1", "value", "was 1048576, is 1"),
        ((*LIMIT, "type"), "str", "breaking", "type was int, is str"),
        (LIMIT, ..., "breaking", "MAX_SIDE_CHANNEL_BYTES: removed"),
        (("functions", "hookspecs.markers.hookimpl"), "()", "breaking", "specname"),
        (("functions", "hookspecs.contracts.worker.command"), ..., "breaking", "removed"),
        (("functions", "framework.sdk.cache.cache_directory"), "(x)", "breaking", "is (x)"),
        (("functions", "framework.sdk.cache.new"), "()", "additive", "added"),
        ((*SLEEP, "check_step"), ..., "breaking", "check_step: removed"),
        (("aliases", "hookspecs.contracts.policy.OrderKey"), "str", "breaking", "is str"),
        (("exports", "hookspecs.Provider"), ..., "breaking", "hookspecs.Provider: removed"),
        (("exports", "framework.launch"), ..., "breaking", "framework.launch: removed"),
        (("exports", "framework.new"), {}, "additive", "framework.new: added"),
    ],
)
def test_what_a_change_means(
    old: dict[str, Any], path: tuple[str, ...], value: Any, kind: str, said: str
) -> None:
    new = copy.deepcopy(old)
    place: Any = new
    for key in path[:-1]:
        place = place[key]
    if value is ...:
        del place[path[-1]]
    else:
        place[path[-1]] = value(place[path[-1]]) if callable(value) else value
    [change] = diff_snapshots(old, new)
    assert (change.kind, required_bump([change])) == (kind, BUMPS[kind])
    assert said in f"{change.subject}: {change.text}"


def test_fields_after_those_by_position_are_additions(old: dict[str, Any]) -> None:
    new = copy.deepcopy(old)
    failure = new[FAILURE[0]][FAILURE[1]]
    failure["positional"].append("extra")
    failure["fields"]["extra"] = {"type": "int", "default": "0"}
    assert required_bump(diff_snapshots(old, new)) is Bump.MINOR


# From the source of the contract to the command that guards it

KEYWORD_FIRST = Edit("events.py", NEW_FIELD.old, "    energy_j: float = 0.0\n" + NEW_FIELD.old)
NOT_CONFIGURED = Edit("hooks.py", "    def configured(self", "    def _configured(self")
NO_LIMIT = Edit("contracts/side_channel.py", '["MAX_SIDE_CHANNEL_BYTES", ', "[")
OTHER_DEFAULT = Edit("types/step.py", "    poisoned: bool = True", "    poisoned: bool = False")
SWAPPED = Edit(
    "types/step.py",
    "    slot: int\n    num_scheduled_tokens: int\n",
    "    num_scheduled_tokens: int\n    slot: int\n",
)


@pytest.mark.parametrize(
    ("edit", "named"),
    [
        (NOT_CONFIGURED, "EngineHooks.configured: removed"),
        (NO_LIMIT, "MAX_SIDE_CHANNEL_BYTES: removed"),
        (OTHER_DEFAULT, "RowFailure.poisoned: default was True, is False"),
        (SWAPPED, "ScheduledRow: by position: was slot, num_scheduled_tokens"),
    ],
    ids=["plain method", "constant", "default", "order"],
)
def test_a_break_needs_a_major_version(tmp_path: Path, edit: Edit, named: str) -> None:
    major, minor = hookspecs.API_VERSION
    root = evolved(tmp_path, [edit, released_as(major, minor + 1)])
    done = snapshot(root, "--against", PRESENT)
    assert done.returncode == 1
    assert "need a major version" in done.stderr and named in done.stderr


def test_keyword_fields_come_in_any_order(tmp_path: Path) -> None:
    major, minor = hookspecs.API_VERSION
    root = evolved(tmp_path, [KEYWORD_FIRST, released_as(major, minor + 1)])
    done = snapshot(root, "--against", PRESENT)
    assert (done.returncode, done.stderr) == (0, "")
