"""The form with code: classes of an author that derive from the kit's."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.little_suite import LittleConformance

MODULE = """
import pytest
from framework.conformance import Subject
from framework.conformance.suites.engine_command import EngineCommandConformance
from framework.conformance.suites.scheduling_policy import SchedulingPolicyConformance

class TestPolicy(SchedulingPolicyConformance):
    @pytest.fixture
    def subject(self):
        return Subject("policies", "scheduling_policy", "{name}")

class TestMisspelt(EngineCommandConformance):
    @pytest.fixture
    def subject(self):
        return Subject("engine-requests", "engine_command", examples={{"argument": 1}})

class TestForgotten(SchedulingPolicyConformance):
    pass
"""


def test_a_test_is_not_replaced_without_a_reason() -> None:
    with pytest.raises(TypeError, match="replaces test_fails of the kit without a reason"):
        type("Mine", (LittleConformance,), {"test_fails": lambda self: None})
    with pytest.raises(TypeError, match="without a reason"):
        type(
            "Mine",
            (LittleConformance,),
            {"test_fails": lambda self: None, "replaced": {"test_fails": " "}},
        )
    why = {"test_fails": "there is no 3 in my country"}
    body = {"test_fails": lambda self: None, "replaced": why, "test_of_mine": lambda self: None}
    mine: Any = type("Mine", (LittleConformance,), body)
    assert "test_of_mine" in mine.cases()


def test_an_author_runs_the_same_tests(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(MODULE.format(name="fcfs"))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "answers", tmp_path],
        capture_output=True,
        text=True,
    )
    assert "1 passed" in done.stdout
    assert "engine_command:requests have the unknown key 'argument'" in done.stdout
    assert "TestForgotten must override the fixture `subject`" in done.stdout
