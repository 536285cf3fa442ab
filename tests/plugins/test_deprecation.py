"""Deprecations, shown on parts of the contract that are not: their warnings and their rules."""

from __future__ import annotations

import copy
import logging
import warnings
from typing import Any

import pytest

import hookspecs.deprecated
from framework.docs.pages import render_pages
from framework.plugins.check import installed_plugins
from framework.plugins.deprecation_rules import removal_problems, table_problems
from framework.plugins.diff import Bump, ChangeKind, diff_snapshots, required_bump
from framework.plugins.impact import deprecated_uses
from framework.plugins.snapshot import build_snapshot
from hookspecs.deprecated import Deprecation, RemovedIn2Warning
from hookspecs.version import API_VERSION

HOOK = "hooks on_cache_reset"
METHOD = "contracts hookspecs.contracts.policy.SchedulingPolicy.expire"
CONTRACT = "contracts hookspecs.contracts.stats.Tracer"
FIELD = "structs hookspecs.events.StepFinished.update_s"
MEMBER = "enums hookspecs.contracts.policy.PolicyCapability.DYNAMIC_ORDER"
VERSION = ".".join(map(str, API_VERSION))


def rows(*subjects: str, since: str = VERSION) -> tuple[Deprecation, ...]:
    return tuple(
        Deprecation(subject=subject, since=since, removal=RemovedIn2Warning, instead="the new way")
        for subject in subjects
    )


@pytest.fixture
def announce(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Deprecates subjects in this version."""

    def make(*subjects: str) -> None:
        monkeypatch.setattr(hookspecs.deprecated, "DEPRECATIONS", rows(*subjects))

    return make


OBSERVER = "@hookimpl\ndef on_cache_reset(self, event): ...\n"
POLICY = (
    "@hookimpl\ndef register_scheduling_policies(self):\n"
    "    yield Provider('old-way', 'fake_policy_impl:Policy')\n"
)
IMPL = (
    "from hookspecs.contracts.policy import SchedulingPolicy\n"
    "class Policy(SchedulingPolicy):\n"
    "    def order_key(self, request, view):\n"
    "        return ()\n"
    "class Expires(Policy):\n"
    "    def expire(self, view):\n"
    "        return ()\n"
)


def of(caught: list[warnings.WarningMessage]) -> list[warnings.WarningMessage]:
    return [one for one in caught if issubclass(one.category, RemovedIn2Warning)]


# Warnings


def test_nothing_is_deprecated_and_nothing_is_said(
    site: Any, build: Any, recwarn: pytest.WarningsRecorder
) -> None:
    assert hookspecs.deprecated.DEPRECATIONS == ()
    site.plugin("observer", OBSERVER)
    build()
    assert of(list(recwarn)) == []


def test_an_implementation_of_a_deprecated_hook_is_told_once_at_load(
    site: Any, build: Any, announce: Any, caplog: pytest.LogCaptureFixture
) -> None:
    announce(HOOK)
    module = site.plugin("observer", OBSERVER)
    site.plugin("other", "@hookimpl\ndef on_step_finished(self, event): ...\n")
    with (
        caplog.at_level(logging.WARNING, "framework.plugins"),
        pytest.warns(RemovedIn2Warning) as caught,
    ):
        build()
    [warning] = of(list(caught))
    text = str(warning.message)
    for part in (
        "'observer'",
        "observer-dist",
        "the hook on_cache_reset",
        f"since {VERSION}",
        "removed in 2.0",
        "instead: the new way",
    ):
        assert part in text
    assert warning.filename.endswith(f"{module}.py")
    assert [record.getMessage() for record in caplog.records] == [text]


def test_a_test_run_may_turn_the_warning_into_an_error(
    site: Any, build: Any, announce: Any
) -> None:
    announce(HOOK)
    site.plugin("observer", OBSERVER)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RemovedIn2Warning)
        with pytest.raises(RemovedIn2Warning, match="on_cache_reset"):
            build()


@pytest.mark.parametrize(
    ("subject", "target", "said"),
    [
        (METHOD, "Expires", "Expires overrides expire"),
        (METHOD, "Policy", None),
        (METHOD.rpartition(".")[0], "Expires", "Expires derives from SchedulingPolicy"),
        (CONTRACT, "Expires", None),
    ],
)
def test_a_provider_that_overrides_a_deprecated_method_is_told_when_it_is_made(
    site: Any,
    build: Any,
    announce: Any,
    recwarn: pytest.WarningsRecorder,
    subject: str,
    target: str,
    said: str | None,
) -> None:
    announce(subject)
    site.plugin("policy", POLICY.replace("Policy')", f"{target}')"))
    site.install("impl", {}, {"fake_policy_impl": IMPL})
    manager = build()
    assert of(list(recwarn)) == []
    manager.create("scheduling_policy", "old-way")
    told = of(list(recwarn))
    assert [said is not None and said in str(one.message) for one in told] == [True] * bool(said)
    assert all(one.filename.endswith("fake_policy_impl.py") for one in told)


@pytest.mark.parametrize("subject", [HOOK, METHOD, FIELD, MEMBER])
def test_check_tells_what_a_plugin_uses(site: Any, announce: Any, subject: str) -> None:
    announce(subject)
    uses = (
        OBSERVER
        + POLICY.replace("Policy')", "Expires', capabilities=frozenset({'dynamic_order'}))")
        + "@hookimpl\ndef on_step_finished(self, event):\n    self.seconds = event.update_s\n"
    )
    site.plugin("user", uses)
    site.install("impl", {}, {"fake_policy_impl": IMPL})
    site.plugin("other", "@hookimpl\ndef on_step_finished(self, event): ...\n")

    def told(name: str) -> list[str]:
        value = installed_plugins(name)[0].value
        return [row.subject for row in deprecated_uses(value, build_snapshot())]

    assert told("user") == [subject]
    assert told("other") == []


# The contract as data, and the reference


def test_a_deprecation_is_an_addition(announce: Any) -> None:
    before = build_snapshot()
    announce(HOOK, METHOD)
    after = build_snapshot()
    changes = diff_snapshots(before, after)
    assert {change.subject for change in changes} == {HOOK, METHOD}
    assert all("removed in 2.0; instead: the new way" in change.text for change in changes)
    assert required_bump(changes) is Bump.MINOR
    assert required_bump(diff_snapshots(after, before)) is Bump.MINOR


def test_what_was_announced_is_said_of_its_removal(announce: Any) -> None:
    announce(HOOK)
    before = build_snapshot()
    after = copy.deepcopy(before)
    del after["hooks"]["on_cache_reset"], after["deprecated"][HOOK]
    [change] = diff_snapshots(before, after)
    assert change.kind is ChangeKind.BREAKING
    assert change.text == f"removed, as announced in {VERSION}; instead: the new way"


def test_a_removal_may_be_put_off_and_not_brought_forward(announce: Any) -> None:
    announce(HOOK)
    soon, late = build_snapshot(), build_snapshot()
    late["deprecated"][HOOK]["removed_in"] = "3.0"
    assert required_bump(diff_snapshots(soon, late)) is Bump.MINOR
    assert required_bump(diff_snapshots(late, soon)) is Bump.MAJOR


def test_the_reference_marks_what_is_deprecated(announce: Any) -> None:
    before = render_pages()
    assert "Nothing is deprecated" in before["deprecations.md"]
    announce(HOOK, METHOD, FIELD, MEMBER)
    after = render_pages()
    for subject in (HOOK, METHOD, FIELD, MEMBER):
        assert f"| `{subject}` | {VERSION} | 2.0 | the new way |" in after["deprecations.md"]
    said = f"deprecated since {VERSION}, removed in 2.0; instead: the new way"
    assert f"| deprecated | {said} |" in after["hooks.md"]
    assert after["hooks.md"].count(said) == 2  # the hook, and the field of the other's event
    assert after["contracts/scheduling_policy.md"].count(said) == 2
    changed = {name for name in after if after[name] != before[name]}
    assert changed == {"deprecations.md", "hooks.md", "contracts/scheduling_policy.md"}


# Rules


def contract(
    major: int, minor: int, *, deprecated: dict[str, tuple[str, str]], without: str = ""
) -> dict[str, Any]:
    """A version with rows of (since, removed in), and without one hook."""
    made = build_snapshot()
    made["api_version"] = [major, minor]
    made["deprecated"] = {
        subject: {"since": since, "removed_in": removed_in, "instead": "the new way"}
        for subject, (since, removed_in) in deprecated.items()
    }
    made["hooks"].pop(without, None)
    return made


ROW = ("1.1", "2.0")


def test_a_row_is_announced_in_the_version_that_adds_it() -> None:
    newest = contract(1, 0, deprecated={})
    assert list(table_problems(contract(1, 1, deprecated={HOOK: ROW}), newest)) == []
    [problem] = table_problems(contract(1, 2, deprecated={HOOK: ROW}), newest)
    assert "announced in this version, 1.2, not in 1.1" in problem
    kept = contract(1, 1, deprecated={HOOK: ROW})
    assert list(table_problems(contract(1, 2, deprecated={HOOK: ROW}), kept)) == []
    [problem] = table_problems(contract(1, 2, deprecated={HOOK: ("1.2", "2.0")}), kept)
    assert "since was 1.1" in problem


@pytest.mark.parametrize(
    ("version", "subject", "row", "said"),
    [
        ((1, 1), "hooks on_moon_risen", ROW, "no such thing"),
        ((1, 1), METHOD.replace("expire", "expires"), ROW, "no such thing"),
        ((1, 1), HOOK, ("1.1", "1.3"), "must be a later major version"),
        ((1, 1), HOOK, ("1.1", "1.0"), "must be a later major version"),
        ((2, 0), HOOK, ROW, "was to be removed in 2.0; remove it"),
    ],
)
def test_rows_that_are_refused(
    version: tuple[int, int], subject: str, row: tuple[str, str], said: str
) -> None:
    newest = contract(1, 1, deprecated={subject: row}) if version > (1, 1) else None
    [problem] = table_problems(contract(*version, deprecated={subject: row}), newest)
    assert subject in problem and said in problem


@pytest.mark.parametrize(
    ("released", "said"),
    [
        (["1.0", "1.1", "1.2", "1.3"], None),
        (["1.0", "1.1", "1.2", "1.3", "1.4"], None),
        (["1.0", "1.1", "1.2"], "after 1 more release(s); 2 must lie between"),
        (["1.0", "1.1"], "after 0 more release(s); 2 must lie between"),
    ],
)
def test_two_releases_lie_between_announcement_and_removal(
    released: list[str], said: str | None
) -> None:
    major, minor = map(int, released[-1].split("."))
    old = contract(major, minor, deprecated={HOOK: ROW})
    new = contract(2, 0, deprecated={}, without="on_cache_reset")
    problems = list(removal_problems(old, new, released))
    assert len(problems) == (1 if said else 0)
    assert all(said in problem for problem in problems if said)


def test_a_removal_comes_neither_unannounced_nor_early() -> None:
    versions = ["1.0", "1.1", "1.2", "1.3"]
    new = contract(2, 0, deprecated={}, without="on_cache_reset")
    [problem] = removal_problems(contract(1, 3, deprecated={}), new, versions)
    assert problem == f"{HOOK} was removed without having been deprecated"
    later = contract(1, 3, deprecated={HOOK: ("1.1", "3.0")})
    [problem] = removal_problems(later, new, versions)
    assert "announced for 3.0" in problem


def test_what_is_not_stable_may_go_without_notice() -> None:
    old = contract(1, 3, deprecated={})
    old["hooks"]["on_cache_reset"]["tier"] = "provisional"
    new = contract(1, 4, deprecated={}, without="on_cache_reset")
    assert list(removal_problems(old, new, ["1.3"])) == []
