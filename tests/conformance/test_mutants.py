"""The kit is tested by mutants: none survives, and every test of the kit catches one."""

from __future__ import annotations

import pytest

from framework.conformance.catalogue import suites_by_kind
from framework.conformance.report import Outcome
from framework.conformance.run import conform
from tests.conformance.mutants.catalogue import all_mutants
from tests.conformance.mutants.mutant import Mutant

MUTANTS = all_mutants()


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: f"{m.suite}-{m.fault.replace(' ', '-')}")
def test_a_mutant_is_caught_by_the_tests_that_it_names(mutant: Mutant) -> None:
    report = conform(
        mutant.plugin,
        settings=mutant.settings,
        examples=mutant.examples,
        only=mutant.caught_by,
        quiet=True,
    )
    tests = [test for test in report.tests if test.suite.partition(":")[0] == mutant.suite]
    survived = set(mutant.caught_by) - {t.name for t in tests if t.outcome is Outcome.FAILED}
    assert not survived, f"the mutant that {mutant.fault!r} survives {sorted(survived)}"


def test_every_test_of_the_kit_catches_a_mutant() -> None:
    caught = {(mutant.suite, name) for mutant in MUTANTS for name in mutant.caught_by}
    tests = {(kind, name) for kind, suite in suites_by_kind().items() for name in suite.cases()}
    assert caught == tests


def test_faults_have_names_of_their_own() -> None:
    faults = [(mutant.suite, mutant.fault) for mutant in MUTANTS]
    assert len(set(faults)) == len(faults)
