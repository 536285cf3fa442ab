"""The conformance kit: whether a plugin keeps the contract that it implements.

Two forms run the same tests. `framework conform NAME` needs no code: it runs all suites that fit
what the installed plugin registers, and writes a report. In a test module of one's own a class
derives from the suite of a kind and says what is under test:

    from framework.conformance import Subject
    from framework.conformance.suites.scheduling_policy import SchedulingPolicyConformance

    class TestMyPolicy(SchedulingPolicyConformance):
        @pytest.fixture
        def subject(self) -> Subject:
            return Subject("my-plugin", "scheduling_policy")

Needs pytest: the extra `conform`.
"""

from __future__ import annotations

from hookspecs.errors import MissingDependencyError

try:
    import pytest
except ImportError as error:
    raise MissingDependencyError(
        "the conformance kit needs the package pytest; install it with: "
        "pip install 'engine-framework[conform]'"
    ) from error

# An assert of an installed package shows its values only where pytest rewrites it.
pytest.register_assert_rewrite("framework.conformance.suites", "framework.conformance.worlds")

from framework.conformance.base import Conformance, lacking, requires, since  # noqa: E402
from framework.conformance.subject import PluginSubject, Subject  # noqa: E402

__all__ = ["Conformance", "PluginSubject", "Subject", "lacking", "requires", "since"]
