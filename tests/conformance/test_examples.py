"""Examples: what a suite can not guess is given by `kind:provider`."""

from __future__ import annotations

import pytest

from framework.conformance.report import Outcome
from framework.conformance.run import conform
from hookspecs.errors import ConfigError
from tests.conformance.mutants.engine_command import NeedsAnExample
from tests.conformance.mutants.mutant import providing
from tests.conformance.mutants.stat_logger import Counting

PLUGIN = providing("engine_command", NeedsAnExample)
LABEL = "engine_command:mutant"


def test_a_command_is_called_with_the_arguments_of_its_example() -> None:
    report = conform(
        PLUGIN,
        examples={LABEL: {"arguments": {"tenant": "tenant-1"}}},
        only=["test_arguments_are_given_by_name", "test_its_answers_can_be_sent"],
        quiet=True,
    )
    assert {test.outcome for test in report.tests} == {Outcome.PASSED}


def test_an_example_for_what_is_not_provided_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"engine_command:mutnt.*provides engine_command:mutant"):
        conform(PLUGIN, examples={"engine_command:mutnt": {}}, quiet=True)


def test_an_example_that_the_suite_does_not_take_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"'argument'; .* takes arguments\. Did .* arguments\?"):
        conform(PLUGIN, examples={LABEL: {"argument": {"tenant": "a"}}}, quiet=True)
    counting = providing("stat_logger", Counting)
    with pytest.raises(ConfigError, match=r"stat_logger:mutant .* 'request'; .* takes nothing\."):
        conform(counting, examples={"stat_logger:mutant": {"request": 1}}, quiet=True)
