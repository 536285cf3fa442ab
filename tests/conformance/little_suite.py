"""A suite of the tests' own: what a run makes of each way in which a test can end."""

from __future__ import annotations

import pytest

from framework.conformance.base import Conformance, lacking, requires, since
from hookspecs.contracts.policy import PolicyCapability

__all__ = ["LittleConformance"]


class LittleConformance(Conformance):
    """One test for each outcome."""

    kind = "little"

    def test_passes(self, seed: int) -> None:
        assert seed >= 0

    def test_fails(self) -> None:
        found = [1, 2]
        assert found == [1, 3], "the numbers differ"

    @since("1.7")
    def test_is_new(self) -> None:
        raise AssertionError("not yet")

    @requires(PolicyCapability.DYNAMIC_ORDER)
    def test_needs_what_is_not_declared(self) -> None:
        raise AssertionError("it must not run")

    @lacking(PolicyCapability.DYNAMIC_ORDER)
    def test_of_a_lack(self) -> None:
        return

    def test_skips_for_a_reason_of_its_own(self) -> None:
        pytest.skip("no time")

    def test_can_not_be_set_up(self, no_such_fixture: object) -> None:
        return
