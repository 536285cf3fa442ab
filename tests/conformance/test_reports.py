"""Every built-in and sample plugin passes the kit, and its committed report says so."""

from __future__ import annotations

import pytest

from framework.conformance.report import Verdict, read_report, same_claims
from tests.conformance.reports import Place, make, places

PLACES = places()


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.plugin)
def test_the_committed_report_is_true(place: Place) -> None:
    report = make(place)
    problems = [f"{test.suite}::{test.name}: {test.reason}" for test in report.failures]
    assert report.verdict is not Verdict.NOT_CONFORMANT, "\n".join(problems)
    assert same_claims(read_report(place.directory), report), (
        "the committed report claims something else; run "
        f"`python -m tests.conformance.reports --write {place.plugin}`"
    )


def test_no_report_is_left_of_a_plugin_that_is_gone() -> None:
    kept = {place.directory for place in PLACES}
    root = PLACES[0].directory.parent
    assert {path for path in root.iterdir() if path.is_dir()} <= kept
