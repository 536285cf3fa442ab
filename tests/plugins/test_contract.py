"""The contract as a whole: hook names, the committed snapshot, what imports load."""

from __future__ import annotations

import copy
import inspect
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import framework
from framework.plugins.diff import Bump, ChangeKind, diff_snapshots, missing_bump, required_bump
from framework.plugins.released import SNAPSHOT_FILE, snapshot_text
from framework.plugins.snapshot import build_snapshot, main
from framework.plugins.specs import HOOKS, KIND_OF_HOOK
from hookspecs import EngineHooks, HookKind, ProcessRole
from hookspecs.events import Event
from hookspecs.kinds import PLUGIN_KINDS

PARTICIPLE = re.compile(r"on_[a-z]+(_[a-z]+)*_([a-z]+ed|[a-z]+ing|ready|reset)")


@pytest.mark.parametrize("name", HOOKS)
def test_the_verb_tells_the_kind(name: str) -> None:
    meta, arguments = HOOKS[name].meta, HOOKS[name].arguments
    match meta.kind:
        case HookKind.PROVIDER:
            assert name.startswith("register_") and arguments == ()
        case HookKind.FILTER:
            assert name.startswith("adjust_") and arguments == ("event",)
        case HookKind.OBSERVER:
            assert PARTICIPLE.fullmatch(name) and arguments == ("event",)
        case HookKind.STEP:
            assert not name.startswith(("register_", "adjust_", "on_"))
    assert meta.roles and set(meta.roles) <= set(ProcessRole)
    assert inspect.getdoc(getattr(EngineHooks, name))


@pytest.mark.parametrize("name", [name for name in HOOKS if HOOKS[name].arguments == ("event",)])
def test_events_are_frozen_structs(name: str) -> None:
    annotation = inspect.signature(getattr(EngineHooks, name), eval_str=True).parameters["event"]
    assert issubclass(annotation.annotation, Event)
    assert annotation.annotation.__struct_config__.frozen


def test_provider_hooks_and_kinds_are_one_to_one() -> None:
    hooks = {name for name in HOOKS if HOOKS[name].meta.kind is HookKind.PROVIDER}
    assert hooks == set(KIND_OF_HOOK)
    for kind in PLUGIN_KINDS.values():
        assert HOOKS[kind.hook].meta.contract == kind.contract.__name__


def test_every_hook_has_its_typed_call() -> None:
    from framework.plugins import Calls

    for name, spec in HOOKS.items():
        if spec.meta.kind in (HookKind.OBSERVER, HookKind.FILTER):
            parameters = list(inspect.signature(getattr(Calls, name)).parameters)
            assert parameters == ["self", "event"], name


def test_hooks_are_called_in_one_module() -> None:
    root = Path(framework.__file__).parent
    callers = [
        str(path.relative_to(root))
        for path in root.rglob("*.py")
        if re.search(r"\.hook\.", path.read_text(encoding="utf-8"))
    ]
    assert set(callers) <= {"plugins/calls.py"}


@pytest.mark.parametrize("module", ["hookspecs", "framework", "framework.plugins"])
def test_imports_stay_light(module: str) -> None:
    code = (
        f"import {module}, sys, json\n"
        "print(json.dumps([m for m in ('torch', 'transformers') if m in sys.modules]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(framework.__file__).parents[1],
    )
    assert json.loads(done.stdout) == []


def test_hookspecs_loads_only_what_it_may() -> None:
    code = (
        "import sys, json\nbefore = set(sys.modules)\nimport hookspecs, hookspecs.kinds\n"
        "print(json.dumps(sorted({m.partition('.')[0] for m in set(sys.modules) - before})))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(framework.__file__).parents[1],
    )
    loaded = set(json.loads(done.stdout)) - set(sys.stdlib_module_names)
    # msgspec imports typing_extensions where it is installed.
    assert loaded <= {"hookspecs", "pluggy", "msgspec", "typing_extensions"}


# The snapshot


def test_the_committed_snapshot_is_the_contract() -> None:
    """If this fails, the contract changed: see whether API_VERSION must grow
    (`python -m framework.plugins.snapshot --against OLD`), then run it with `--write`."""
    assert SNAPSHOT_FILE.read_text(encoding="utf-8") == snapshot_text(build_snapshot())


def test_the_snapshot_holds_the_contract() -> None:
    snapshot = build_snapshot()
    assert set(snapshot["hooks"]) == set(HOOKS)
    assert set(snapshot["kinds"]) == set(PLUGIN_KINDS)
    step = snapshot["structs"]["hookspecs.events.StepFinished"]["fields"]["step"]
    assert step == {"type": "int"}
    scheduler = snapshot["contracts"]["hookspecs.contracts.scheduler.Scheduler"]
    assert scheduler["methods"]["schedule"]["abstract"]
    capabilities = snapshot["enums"]["hookspecs.contracts.scheduler.SchedulerCapability"]
    assert capabilities["PREEMPTION"] == "preemption"


@pytest.fixture
def old() -> dict[str, Any]:
    return build_snapshot()


def changed(old: dict[str, Any], path: tuple[str, ...], value: Any) -> dict[str, Any]:
    """A copy with one entry set, or deleted if `value` is `...`."""
    new = copy.deepcopy(old)
    place: Any = new
    for key in path[:-1]:
        place = place[key]
    if value is ...:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return new


EVENT = ("structs", "hookspecs.events.StepFinished", "fields")
ABC = ("contracts", "hookspecs.contracts.scheduler.Scheduler", "methods")
LENT = ("contracts", "hookspecs.contracts.policy.SchedulerView", "methods")
ENUM = ("enums", "hookspecs.contracts.scheduler.SchedulerCapability")
METHOD = {"shape": "method", "signature": "(self) -> 'None'", "abstract": False}


@pytest.mark.parametrize(
    ("path", "value", "kind"),
    [
        ((*EVENT, "new"), {"type": "int", "default": "0"}, "additive"),
        ((*EVENT, "new"), {"type": "int"}, "breaking"),
        ((*EVENT, "step"), ..., "breaking"),
        ((*EVENT, "step"), {"type": "str"}, "breaking"),
        ((*EVENT, "step"), {"type": "int", "default": "0"}, "additive"),
        ((*ABC, "new"), METHOD, "additive"),
        ((*ABC, "new"), {**METHOD, "abstract": True}, "breaking"),
        ((*ABC, "schedule"), ..., "breaking"),
        ((*ABC, "preempt_all"), METHOD, "additive"),
        ((*ABC, "preempt_all"), {**METHOD, "signature": "(self, x)"}, "breaking"),
        ((*LENT, "new"), {**METHOD, "abstract": True}, "additive"),
        ((*ENUM, "NEW"), "new", "additive"),
        ((*ENUM, "PREEMPTION"), ..., "breaking"),
        (("hooks", "on_cache_reset"), ..., "breaking"),
        (("hooks", "on_moon_risen"), {"kind": "observer"}, "additive"),
        (("hooks", "on_cache_reset", "activation"), "listed", "breaking"),
        (("hooks", "on_cache_reset", "roles"), ["core", "worker"], "additive"),
        (("hooks", "on_cache_reset", "roles"), ["worker"], "breaking"),
        (("hooks", "on_cache_reset", "hot"), True, "additive"),
        (("kinds", "sampler", "setting"), None, "breaking"),
        (("errors", "hookspecs.errors.StepError"), ..., "breaking"),
    ],
)
def test_what_a_change_means(
    old: dict[str, Any], path: tuple[str, ...], value: Any, kind: str
) -> None:
    changes = diff_snapshots(old, changed(old, path, value))
    assert changes
    worst = ChangeKind.BREAKING if kind == "breaking" else ChangeKind.ADDITIVE
    assert max(change.kind for change in changes) == worst
    assert path[1] in changes[0].subject
    assert required_bump(changes) is (Bump.MAJOR if kind == "breaking" else Bump.MINOR)


PROVISIONAL = ("hooks", "register_tracers", "tier")
TRACER = ("contracts", "hookspecs.contracts.stats.Tracer", "methods", "on_request_finished")
TRACER_CONTEXT = ("structs", "hookspecs.contracts.stats.TracerContext", "fields", "options")
LOGGER = ("contracts", "hookspecs.contracts.stats.StatLogger", "methods", "record")


@pytest.mark.parametrize(
    ("path", "value", "bump"),
    [
        (("hooks", "register_tracers", "signature"), "(self, x)", Bump.MINOR),
        (("hooks", "register_tracers"), ..., Bump.MINOR),
        (("kinds", "tracer", "setting"), None, Bump.MINOR),
        (TRACER, ..., Bump.MINOR),
        (TRACER_CONTEXT, ..., Bump.MINOR),
        # In the same module, of a kind that is stable.
        (LOGGER, ..., Bump.MAJOR),
    ],
)
def test_what_is_not_stable_may_change_in_a_minor_version(
    old: dict[str, Any], path: tuple[str, ...], value: Any, bump: Bump
) -> None:
    provisional = changed(old, PROVISIONAL, "provisional")
    changes = diff_snapshots(provisional, changed(provisional, path, value))
    assert required_bump(changes) is bump
    expected = ChangeKind.PROVISIONAL if bump is Bump.MINOR else ChangeKind.BREAKING
    assert {change.kind for change in changes} == {expected}


def test_a_module_of_contracts_that_are_not_stable_may_change_as_a_whole(
    old: dict[str, Any],
) -> None:
    path = ("structs", "hookspecs.contracts.parallel.EngineLoad", "fields", "engine_index")
    kinds = ("coordinator", "load_balancer")
    for kind in kinds:
        old = changed(old, ("hooks", old["kinds"][kind]["hook"], "tier"), "provisional")
    assert required_bump(diff_snapshots(old, changed(old, path, ...))) is Bump.MINOR
    stable = changed(old, ("hooks", old["kinds"][kinds[0]]["hook"], "tier"), "stable")
    assert required_bump(diff_snapshots(stable, changed(stable, path, ...))) is Bump.MAJOR


def test_no_change_needs_no_bump(old: dict[str, Any]) -> None:
    assert diff_snapshots(old, old) == [] and missing_bump(old, old) is None


@pytest.mark.parametrize(
    ("change", "version", "enough"),
    [
        (((*EVENT, "step"), ...), [1, 0], False),
        (((*EVENT, "step"), ...), [1, 1], False),
        (((*EVENT, "step"), ...), [2, 0], True),
        (((*ENUM, "NEW"), "new"), [1, 0], False),
        (((*ENUM, "NEW"), "new"), [1, 1], True),
    ],
)
def test_the_version_must_grow_with_the_contract(
    old: dict[str, Any], change: Any, version: list[int], enough: bool
) -> None:
    old = {**old, "api_version": [1, 0]}
    new = {**changed(old, *change), "api_version": version}
    problem = missing_bump(old, new)
    assert (problem is None) is enough
    if problem is not None:
        assert str(change[0][1]) in problem


def test_the_command_fails_without_a_bump(
    tmp_path: Path, old: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    before = tmp_path / "old.json"
    before.write_text(snapshot_text(old), encoding="utf-8")
    assert main(["--against", str(before)]) == 0
    before.write_text(snapshot_text(changed(old, (*EVENT, "gone"), {"type": "int"})))
    assert main(["--against", str(before)]) == 1
    assert "StepFinished.gone: removed" in capsys.readouterr().err
