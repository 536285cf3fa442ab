"""What a run says of each test, and the verdict that follows."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from framework.conformance import session
from framework.conformance.base import Conformance
from framework.conformance.catalogue import Run
from framework.conformance.report import (
    BADGE_FILE,
    Outcome,
    ProviderEntry,
    Report,
    TestEntry,
    Verdict,
    read_report,
    same_claims,
    write_report,
)
from framework.conformance.session import run_suites
from framework.conformance.subject import Subject
from hookspecs.errors import ConfigError
from tests.conformance.little_suite import LittleConformance


@pytest.fixture(scope="module")
def run() -> Run:
    return Run(LittleConformance, Subject("policies", "scheduling_policy", "fcfs"), "little:fcfs")


def outcomes(entries: list[TestEntry]) -> dict[str, Outcome]:
    return {entry.name: entry.outcome for entry in entries}


def test_each_way_to_end_has_its_outcome(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "API_VERSION", (1, 7))
    entries = run_suites([run], seed=0, expected_failures={}, quiet=True)
    assert outcomes(entries) == {
        "test_passes": Outcome.PASSED,
        "test_fails": Outcome.FAILED,
        "test_is_new": Outcome.ADVISORY,
        "test_needs_what_is_not_declared": Outcome.NOT_DECLARED,
        "test_of_a_lack": Outcome.PASSED,
        "test_skips_for_a_reason_of_its_own": Outcome.SKIPPED,
        "test_can_not_be_set_up": Outcome.FAILED,
    }
    reasons = {entry.name: entry.reason for entry in entries}
    assert "the numbers differ" in reasons["test_fails"]
    assert reasons["test_needs_what_is_not_declared"] == "dynamic_order"
    assert reasons["test_skips_for_a_reason_of_its_own"] == "no time"
    assert "no_such_fixture" in reasons["test_can_not_be_set_up"]


def test_a_new_test_counts_in_the_next_minor_version(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "API_VERSION", (1, 8))
    (entry,) = run_suites([run], seed=0, only=["test_is_new"], expected_failures={}, quiet=True)
    assert entry.outcome is Outcome.FAILED


def test_explained_failures_are_expected_and_must_happen(run: Run) -> None:
    reasons = {"little:fcfs::test_fails": "no 3 here", "little:fcfs::test_passes": "it does not"}
    entries = run_suites(
        [run],
        seed=0,
        only=["test_fails", "test_passes"],
        expected_failures=reasons,
        quiet=True,
    )
    assert outcomes(entries) == {
        "test_fails": Outcome.EXPECTED,
        "test_passes": Outcome.UNEXPECTED,
    }
    assert {entry.reason for entry in entries} == {"no 3 here", "it does not"}


def test_names_that_are_no_tests_are_refused(run: Run) -> None:
    with pytest.raises(ConfigError, match=r"'test_flies'.*test_fails"):
        run_suites([run], seed=0, only=["test_flies"], expected_failures={}, quiet=True)
    with pytest.raises(ConfigError, match=r"'test_fails'.*little:fcfs::test_fails"):
        run_suites([run], seed=0, expected_failures={"test_fails": "x"}, quiet=True)


def test_it_runs_without_the_plugins_that_are_installed_for_pytest(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    run_suites([run], seed=3, only=["test_passes"], expected_failures={})
    said = capsys.readouterr().out
    assert "1 passed" in said
    assert "hypothesis" not in said


@pytest.mark.parametrize(
    ("name", "value"), [("PYTEST_ADDOPTS", "-k passes"), ("PYTEST_PLUGINS", "no_such_module")]
)
def test_the_environment_of_pytest_does_not_matter(
    run: Run, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    entries = run_suites([run], seed=0, expected_failures={}, quiet=True)
    assert len(entries) == len(LittleConformance.cases())
    assert os.environ[name] == value


def test_an_interrupt_comes_out() -> None:
    class InterruptedConformance(Conformance):
        """Somebody presses a key."""

        def test_takes_long(self) -> None:
            raise KeyboardInterrupt

    subject = Subject("policies", "scheduling_policy", "fcfs")
    with pytest.raises(KeyboardInterrupt):
        run_suites(
            [Run(InterruptedConformance, subject, "x")], seed=0, expected_failures={}, quiet=True
        )


def test_what_is_enabled_beside_the_plugin_does_not_leave_it_out() -> None:
    subject = Subject("policies", "scheduling_policy", "fcfs", {"plugins": {"enable": ["ngram"]}})
    assert subject.config().plugins.enable == ("ngram", "policies")


def report(*found: Outcome, seconds: float = 0.5) -> Report:
    return Report(
        plugin="mine",
        distribution="mine-dist",
        version="1.2",
        api=">=1.0,<2",
        kit="1.0",
        environment={"python": f"3.{int(seconds)}"},
        seed=0,
        device="cpu",
        settings={"cache": {"block_size": 4}},
        examples={},
        providers=(ProviderEntry(kind="scheduler", name="mine", capabilities=("preemption",)),),
        untested=(),
        tests=tuple(
            TestEntry(
                suite="scheduler:mine",
                name=f"test_{number}",
                outcome=outcome,
                seconds=seconds,
                reason="because | of this\nand that",
            )
            for number, outcome in enumerate(found)
        ),
    )


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        ((Outcome.PASSED, Outcome.NOT_DECLARED, Outcome.ADVISORY), Verdict.CONFORMANT),
        ((Outcome.PASSED, Outcome.EXPECTED), Verdict.WITH_EXCEPTIONS),
        ((Outcome.PASSED, Outcome.FAILED), Verdict.NOT_CONFORMANT),
        ((Outcome.PASSED, Outcome.UNEXPECTED), Verdict.NOT_CONFORMANT),
        ((Outcome.PASSED, Outcome.SKIPPED), Verdict.NOT_CONFORMANT),
        ((), Verdict.NOT_CONFORMANT),
    ],
)
def test_the_verdict(found: tuple[Outcome, ...], verdict: Verdict) -> None:
    assert report(*found).verdict is verdict


def test_some_of_the_tests_prove_nothing() -> None:
    untested = msgspec.structs.replace(report(Outcome.PASSED), untested=("tool_parser:x",))
    assert untested.verdict is Verdict.INCOMPLETE
    some = msgspec.structs.replace(report(Outcome.PASSED), only=("test_0",))
    assert some.verdict is Verdict.INCOMPLETE
    failed = msgspec.structs.replace(report(Outcome.FAILED), only=("test_0",))
    assert failed.verdict is Verdict.NOT_CONFORMANT


def test_a_report_is_written_and_read(tmp_path: Path) -> None:
    made = report(Outcome.PASSED, Outcome.FAILED, Outcome.NOT_DECLARED)
    json_file, markdown, _ = write_report(made, tmp_path / "new" / "folder")
    assert read_report(json_file.parent) == made
    text = markdown.read_text()
    assert "# mine: not conformant 1.0" in text
    assert "| `test_1` | **FAILED**: `because \u00a6 of this` |" in text
    assert "1 passed of 3." in text
    badge = msgspec.json.decode((json_file.parent / BADGE_FILE).read_bytes())
    assert (badge["message"], badge["color"]) == ("not conformant 1.0", "red")


def test_time_and_place_are_no_part_of_the_claim() -> None:
    assert same_claims(report(Outcome.PASSED), report(Outcome.PASSED, seconds=9.0))
    assert not same_claims(report(Outcome.PASSED), report(Outcome.FAILED))
