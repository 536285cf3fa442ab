"""Suite of scheduling policies, in a mini kernel and in a real engine."""

from __future__ import annotations

from framework.conformance.suites.scheduling_policy.answers import Answers
from framework.conformance.suites.scheduling_policy.groups import Groups
from framework.conformance.suites.scheduling_policy.order import Order
from framework.conformance.suites.scheduling_policy.surroundings import Surroundings

__all__ = ["SchedulingPolicyConformance"]


# Tests run in the reverse order of the bases.
class SchedulingPolicyConformance(Surroundings, Answers, Groups, Order):
    """Scheduling policies decide order, admission, victims and caps, and touch nothing."""
