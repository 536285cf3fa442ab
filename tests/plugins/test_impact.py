"""What a change of the contract means for one plugin, told from its source."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from framework.cli.main import main
from framework.plugins.impact import Impact, impact_of
from framework.plugins.snapshot import build_snapshot

POLICY = "contracts hookspecs.contracts.policy.SchedulingPolicy"
VIEW = "contracts hookspecs.contracts.policy.SchedulerView"
STEP = "structs hookspecs.events.StepFinished"
OUTPUT = "structs hookspecs.types.outputs.CompletionOutput"
CAPABILITY = "enums hookspecs.contracts.policy.PolicyCapability"
METHOD = {"shape": "method", "signature": "(self) -> 'None'", "abstract": False}
FIELD = {"type": "int", "default": "0"}

Edit = Callable[[dict[str, Any]], None]


def impact(value: str, edit: Edit) -> Impact:
    """From the present contract to one that `edit` made of it."""
    old = build_snapshot()
    new = copy.deepcopy(old)
    edit(new)
    new["api_version"] = [old["api_version"][0] + 1, 0]
    return impact_of(value, old, new)


def subjects(value: str, edit: Edit) -> list[str]:
    return [change.subject for change in impact(value, edit).changes]


def setting(subject: str, value: Any) -> Edit:
    """Sets an entry of a class, or removes it if `value` is None."""
    section, _, path = subject.partition(" ")
    owner, _, name = path.rpartition(".")

    def edit(snapshot: dict[str, Any]) -> None:
        entry = snapshot[section][owner]
        part = {"structs": "fields", "contracts": "methods"}.get(section)
        place = entry[part] if part else entry
        if value is None:
            del place[name]
        else:
            place[name] = value

    return edit


@pytest.fixture
def package(site: Any) -> Callable[..., str]:
    """`package(plugin=…, policy=…)`: modules of one package; returns the entry point's value."""

    def make(**modules: str) -> str:
        path = site.install("pack", {}, {})
        folder = path / "fake_pack"
        folder.mkdir()
        for name, source in {"__init__": "", **modules}.items():
            (folder / f"{name}.py").write_text(source)
        return "fake_pack.plugin:plugin"

    return make


OBSERVER = """
from hookspecs import EngineHooks, hookimpl
class Plugin(EngineHooks):
    @hookimpl
    def on_step_finished(self, event):
        self.total += event.num_rows
plugin = Plugin()
"""


@pytest.mark.parametrize(
    ("subject", "value", "concerns"),
    [
        (f"{STEP}.num_rows", None, True),
        (f"{STEP}.num_rows", {"type": "float"}, True),
        (f"{STEP}.update_s", None, False),
        (f"{STEP}.energy_j", FIELD, True),
        ("structs hookspecs.events.RequestFinished.energy_j", FIELD, False),
        (f"{POLICY}.on_idle", METHOD, False),
    ],
)
def test_fields_of_events(
    package: Callable[..., str], subject: str, value: Any, concerns: bool
) -> None:
    plugin = package(plugin=OBSERVER)
    assert subjects(plugin, setting(subject, value)) == ([subject] if concerns else [])
    assert impact(plugin, setting(subject, value)).others == (0 if concerns else 1)


def test_hooks_and_kinds(package: Callable[..., str]) -> None:
    plugin = package(
        plugin="import hookspecs\n"
        "class Plugin:\n"
        "    @hookspecs.hookimpl\n"
        "    def register_tracers(self): ...\n"
        "    @hookspecs.hookimpl(optionalhook=True, specname='on_cache_reset')\n"
        "    def reset(self, event): ...\n"
        "    def on_step_finished(self, event): ...\n"
    )

    def edit(snapshot: dict[str, Any]) -> None:
        for hook in ("on_cache_reset", "register_tracers", "on_step_finished"):
            snapshot["hooks"][hook]["signature"] = "(self, x)"
        for kind in ("tracer", "stat_logger"):
            snapshot["kinds"][kind]["setting"] = "elsewhere"
        snapshot["hooks"]["on_moon_risen"] = snapshot["hooks"]["on_cache_reset"]

    found = impact(plugin, edit)
    assert found.hooks == ("on_cache_reset", "register_tracers")
    assert [change.subject for change in found.changes] == [
        "hooks on_cache_reset",
        "hooks register_tracers",
        "kinds tracer",
    ]
    assert found.breaks


PROVIDES = """
from hookspecs import Provider, hookimpl
@hookimpl
def register_scheduling_policies():
    yield Provider("x", "fake_pack.policy:Policy", capabilities=frozenset({"dynamic_order"}))
"""
OVERRIDES = """
from .base import Base as Parent
class Policy(Parent):
    def order_key(self, request, view):
        return (view.now,)
"""
BASE = """
import hookspecs.contracts.policy as contracts
class Base(contracts.SchedulingPolicy):
    def admit(self, request, view):
        return contracts.Admission.ADMIT
"""


@pytest.mark.parametrize(
    ("subject", "value", "concerns"),
    [
        # The contract: what it overrides, what it must have, and what is new.
        (f"{POLICY}.order_key", {**METHOD, "signature": "(self)"}, True),
        (f"{POLICY}.admit", None, True),
        (f"{POLICY}.expire", None, False),
        (f"{POLICY}.expire", {**METHOD, "abstract": True}, True),
        (f"{POLICY}.on_idle", METHOD, True),
        # What it is lent: used without being imported.
        (f"{VIEW}.now", None, True),
        (f"{VIEW}.free_blocks", None, False),
        # Capabilities: written as a string.
        (f"{CAPABILITY}.DYNAMIC_ORDER", None, True),
        (f"{CAPABILITY}.NEW", "new", True),
        ("enums hookspecs.contracts.policy.Admission.ADMIT", None, True),
        ("enums hookspecs.contracts.policy.Admission.WAIT", None, False),
        ("enums hookspecs.contracts.worker.WorkerCapability.NEW", "new", False),
    ],
)
def test_contracts_through_classes_of_the_package(
    package: Callable[..., str], subject: str, value: Any, concerns: bool
) -> None:
    plugin = package(plugin=PROVIDES, policy=OVERRIDES, base=BASE)
    found = impact(plugin, setting(subject, value))
    assert {change.subject for change in found.changes} == ({subject} if concerns else set())
    assert found.contracts == ("hookspecs.contracts.policy.SchedulingPolicy",)


def test_providers_elsewhere_are_read_too(package: Callable[..., str], site: Any) -> None:
    site.install("elsewhere", {}, {"fake_elsewhere": BASE})
    plugin = package(plugin=PROVIDES.replace("fake_pack.policy:Policy", "fake_elsewhere:Base"))
    found = impact(plugin, setting(f"{POLICY}.admit", None))
    assert len(found.changes) == 1
    assert found.packages == ("fake_elsewhere", "fake_pack")
    assert "fake_elsewhere" in found.modules


@pytest.mark.parametrize(
    "source",
    [
        "from hookspecs import CompletionOutput",
        "from hookspecs.types.outputs import CompletionOutput as Output",
        "from hookspecs.types.outputs import *\nmade = CompletionOutput",
        "import hookspecs.types.outputs\nhookspecs.types.outputs.CompletionOutput",
        "from hookspecs.types import outputs\noutputs.CompletionOutput",
        "def late():\n    from hookspecs import CompletionOutput",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from hookspecs import *\n"
        "    from hookspecs import CompletionOutput",
    ],
)
def test_every_form_of_import_counts(package: Callable[..., str], source: str) -> None:
    plugin = package(plugin=source)
    assert subjects(plugin, setting(f"{OUTPUT}.new", FIELD)) == [f"{OUTPUT}.new"]
    other = "structs hookspecs.types.outputs.Logprob.new"
    assert subjects(plugin, setting(other, FIELD)) == []


def test_what_is_reached_through_a_field_concerns_where_its_name_is_used(
    package: Callable[..., str],
) -> None:
    plugin = package(
        plugin="from hookspecs import hookimpl\n@hookimpl\n"
        "def adjust_output(event):\n    print(event.output.outputs[0].token_ids)\n"
    )
    assert subjects(plugin, setting(f"{OUTPUT}.token_ids", None)) == [f"{OUTPUT}.token_ids"]
    assert subjects(plugin, setting(f"{OUTPUT}.text", None)) == []
    assert subjects(plugin, setting(f"{OUTPUT}.new", FIELD)) == []


USES = """
import framework
from hookspecs import EngineHooks, hookimpl
from hookspecs.contracts import side_channel
from hookspecs.contracts.worker import command
from hookspecs.types.step import RowFailure
from framework.sdk.model_directory import describe
from framework.sdk.sleep import SleepState
class Plugin(EngineHooks):
    def configured(self, context):
        assert side_channel.MAX_SIDE_CHANNEL_BYTES > 5
        framework.launch()
        return RowFailure("x")
    @hookimpl
    def on_cache_reset(self, event):
        SleepState().check_step()
"""
CONFIGURED = "contracts hookspecs.hooks.EngineHooks.configured"


@pytest.mark.parametrize(
    ("path", "value", "subject", "concerns"),
    [
        (("functions", "hookspecs.contracts.worker.command"), "()", None, True),
        (("functions", "hookspecs.markers.hookimpl"), "()", None, True),
        (("functions", "hookspecs.markers.hook_meta"), "()", None, False),
        (("functions", "framework.sdk.cache.cache_directory"), "()", None, False),
        (("functions", "framework.sdk.model_directory.describe.describe"), "()", None, True),
        (
            ("constants", "hookspecs.contracts.side_channel.MAX_SIDE_CHANNEL_BYTES", "value"),
            "1",
            "constants hookspecs.contracts.side_channel.MAX_SIDE_CHANNEL_BYTES",
            True,
        ),
        (("exports", "framework.launch"), ..., None, True),
        (("exports", "framework.serve"), ..., None, False),
        (("exports", "framework.sdk.model_directory.describe"), ..., None, True),
        (("exports", "hookspecs.hookimpl"), ..., None, True),
        (
            ("classes", "framework.sdk.sleep.SleepState", "methods", "check_step"),
            ...,
            "classes framework.sdk.sleep.SleepState.check_step",
            True,
        ),
        (
            ("classes", "framework.sdk.sleep.SleepState", "methods", "woke"),
            ...,
            "classes framework.sdk.sleep.SleepState.woke",
            False,
        ),
        (
            ("contracts", "hookspecs.hooks.EngineHooks", "methods", "configured"),
            ...,
            CONFIGURED,
            True,
        ),
        # It is not named: that is where a default counts.
        (
            ("structs", "hookspecs.types.step.RowFailure", "fields", "poisoned", "default"),
            "False",
            "structs hookspecs.types.step.RowFailure.poisoned",
            True,
        ),
        (
            ("structs", "hookspecs.types.step.RowFailure", "positional"),
            ["plugin", "message"],
            "structs hookspecs.types.step.RowFailure",
            True,
        ),
        (
            ("structs", "hookspecs.types.step.ScheduledRow", "positional"),
            [],
            "structs hookspecs.types.step.ScheduledRow",
            False,
        ),
    ],
)
def test_all_that_modules_export(
    package: Callable[..., str],
    path: tuple[str, ...],
    value: Any,
    subject: str | None,
    concerns: bool,
) -> None:
    def edit(snapshot: dict[str, Any]) -> None:
        place: Any = snapshot
        for key in path[:-1]:
            place = place[key]
        if value is ...:
            del place[path[-1]]
        else:
            place[path[-1]] = value

    expected = subject or f"{path[0]} {path[1]}"
    found = impact(package(plugin=USES), edit)
    assert [change.subject for change in found.changes] == ([expected] if concerns else [])
    assert found.breaks is concerns


def test_a_plugin_that_does_not_derive_from_the_hooks_implements_them(
    package: Callable[..., str],
) -> None:
    plugin = package(plugin=USES.replace("(EngineHooks)", ""))
    assert subjects(plugin, setting(CONFIGURED, None)) == [CONFIGURED]


def test_a_class_that_went_concerns_whoever_imports_it(package: Callable[..., str]) -> None:
    plugin = package(plugin="from hookspecs.errors import StepError\nimport os.path, none.such\n")

    def edit(snapshot: dict[str, Any]) -> None:
        del snapshot["errors"]["hookspecs.errors.StepError"]
        del snapshot["errors"]["hookspecs.errors.ConfigError"]

    assert subjects(plugin, edit) == ["errors hookspecs.errors.StepError"]


def test_nothing_is_imported_and_what_can_not_be_read_is_said(
    package: Callable[..., str], site: Any
) -> None:
    source = "raise SystemExit('not to be imported')\n" + OBSERVER
    plugin = package(plugin=source, damaged="def (", empty="")
    found = impact(plugin, setting(f"{STEP}.num_rows", None))
    assert found.hooks == ("on_step_finished",) and len(found.changes) == 1
    assert found.unread == ("fake_pack.damaged",)
    assert impact("fake_nowhere:plugin", setting(f"{STEP}.num_rows", None)).unread == (
        "fake_nowhere",
    )


def test_the_command_for_a_plugin_that_the_running_contract_refuses(
    site: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    body = "@hookimpl\ndef on_step_finished(self, event):\n    print(event.mood)\n"
    site.plugin("old-one", body, api=">=0.1,<0.2")
    before = build_snapshot()
    before["api_version"] = [0, 1]
    before["structs"]["hookspecs.events.StepFinished"]["fields"]["mood"] = FIELD
    old = tmp_path / "api.json"
    old.write_text(json.dumps(before))

    assert main(["plugins", "check", "old-one", "--against", str(old), "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert ">=0.1,<0.2" in report["findings"][0]
    [change] = report["against"]["changes"]
    assert change == {"kind": "breaking", "subject": f"{STEP}.mood", "text": "removed"}

    assert main(["plugins", "check", "old-one", "--against", str(old)]) == 1
    said = capsys.readouterr().out
    assert "From 0.1 to " in said and f"{STEP}.mood" in said and "Not looked at" in said
    assert main(["plugins", "check", "old-one", "--against", "0.9"]) == 2
    assert "'0.9' is neither a contract version" in capsys.readouterr().err
