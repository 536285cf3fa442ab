"""The kit describes itself: its page is up to date, and its tests say what they do."""

from __future__ import annotations

import inspect
import re

import pytest

from framework.conformance.catalogue import suites_by_kind
from tests.conformance.coverage import PAGE, page

SUITES = suites_by_kind()
FORM = re.compile(r"Requires .+\.\s+Does: .+[.?!]\s+Must: .+\.$", re.DOTALL)


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run `make docs`"


@pytest.mark.parametrize("kind", SUITES)
def test_every_test_says_what_it_requires_does_and_demands(kind: str) -> None:
    unclear = [
        name
        for name, test in SUITES[kind].cases().items()
        if not FORM.match(inspect.getdoc(test) or "")
    ]
    assert not unclear
    assert SUITES[kind].kind == kind
