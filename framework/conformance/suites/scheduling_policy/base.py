"""What the parts of the suite of scheduling policies share."""

from __future__ import annotations

import pytest

from framework.conformance.base import Conformance
from framework.conformance.subject import Subject
from framework.conformance.worlds.makers import PartMaker, kernel_around
from framework.conformance.worlds.mini_kernel import MiniKernel
from framework.conformance.worlds.workload import workload
from framework.core.request import Request
from hookspecs.config import EngineConfig
from hookspecs.contracts.policy import SchedulingPolicy

__all__ = ["WORKLOADS", "SchedulingPolicyPart", "new", "requests_of"]

WORKLOADS = 40
"""Random workloads of a test."""


class SchedulingPolicyPart(Conformance):
    """A policy, and a mini kernel around it."""

    kind = "scheduling_policy"

    @pytest.fixture
    def make(self, subject: Subject) -> PartMaker:
        """Makes the policy, and the built-in parts around it."""
        return PartMaker(subject)

    @pytest.fixture
    def policy(self, make: PartMaker, subject: Subject) -> SchedulingPolicy:
        """A new policy."""
        return new(make, subject)

    @pytest.fixture
    def kernel(self, make: PartMaker) -> MiniKernel:
        """A kernel whose scheduler does not know the policy: it lends requests and a view."""
        return kernel_around(make, num_blocks=400, max_num_seqs=32, policies=())


def new(make: PartMaker, subject: Subject) -> SchedulingPolicy:
    policy: SchedulingPolicy = make.named("scheduling_policy", subject.provider, EngineConfig())
    return policy


def requests_of(kernel: MiniKernel, seed: int) -> list[Request]:
    """Waiting requests of all sorts."""
    return [
        kernel.add(
            arrival.prompt,
            arrival.max_tokens,
            priority=arrival.priority,
            tenant=arrival.tenant,
            deadline=arrival.deadline,
        )
        for arrival in workload(seed, requests=24).arrivals
    ]
