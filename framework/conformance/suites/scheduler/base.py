"""What the parts of the suite of schedulers share."""

from __future__ import annotations

from typing import Any

import pytest

from framework.conformance.base import Conformance
from framework.conformance.subject import Subject
from framework.conformance.worlds.makers import PartMaker
from framework.conformance.worlds.mini_kernel import MiniKernel
from framework.conformance.worlds.spied_cache import SpiedCache, spying
from framework.conformance.worlds.told_policy import ToldPolicy

__all__ = ["BOUND", "SchedulerPart", "assert_counts", "assert_empty", "spied"]

BOUND = 2000
"""Steps in which a workload that needs a few hundred must be done."""


class SchedulerPart(Conformance):
    """A scheduler, and a policy that does as it is told."""

    kind = "scheduler"

    @pytest.fixture
    def make(self, subject: Subject) -> PartMaker:
        """Makes the scheduler, and the parts around it that the configuration names."""
        return PartMaker(subject)

    @pytest.fixture
    def told(self) -> ToldPolicy:
        """The only policy of a kernel: it does as it is told."""
        return ToldPolicy()


def spied(make: PartMaker, **sizes: Any) -> tuple[MiniKernel, SpiedCache]:
    kernel = MiniKernel(spying(make), policies=make.policies(), **sizes)
    assert isinstance(kernel.kv, SpiedCache)
    return kernel, kernel.kv


def assert_counts(kernel: MiniKernel) -> None:
    running = kernel.table.num_running
    waiting = len(kernel.requests) - running
    told = (kernel.scheduler.num_running, kernel.scheduler.num_waiting)
    assert told == (running, waiting), (
        f"num_running and num_waiting are {told}; {running} requests hold a slot, and {waiting} "
        "others have not ended"
    )


def assert_empty(kernel: MiniKernel, when: str) -> None:
    assert not kernel.requests, f"{sorted(kernel.requests)} have not ended ({when})"
    in_use = kernel.kv.blocks_in_use()
    assert in_use == 0, f"{in_use} blocks are in use by nobody ({when})"
    assert_counts(kernel)
