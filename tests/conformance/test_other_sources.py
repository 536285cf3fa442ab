"""A model source of an author's needs no more said than the name of a model."""

from __future__ import annotations

from framework.conformance.report import Outcome
from framework.conformance.run import conform
from tests.conformance.small_source import SMALL


def test_the_name_of_a_model_is_enough() -> None:
    report = conform(SMALL, settings={"model": {"name": "small:one"}}, quiet=True)
    assert {test.name: test.reason for test in report.failures} == {}
    assert {test.outcome for test in report.tests} == {Outcome.PASSED}
