"""Suite of schedulers, in a mini kernel and in a real engine."""

from __future__ import annotations

from framework.conformance.suites.scheduler.cache import Cache
from framework.conformance.suites.scheduler.policies import Policies
from framework.conformance.suites.scheduler.preemption import Preemption
from framework.conformance.suites.scheduler.states import States
from framework.conformance.suites.scheduler.surroundings import Surroundings
from framework.conformance.suites.scheduler.tokens import Tokens
from framework.conformance.suites.scheduler.workloads import Workloads

__all__ = ["SchedulerConformance"]


# Tests run in the reverse order of the bases.
class SchedulerConformance(Surroundings, Preemption, Cache, States, Policies, Tokens, Workloads):
    """Schedulers decide who computes how many tokens, and keep what they are lent in order."""
