"""Keys that move, and the groups whose requests move together."""

from __future__ import annotations

import itertools
import random
from collections import defaultdict
from collections.abc import Hashable

from framework.conformance.base import requires
from framework.conformance.subject import Subject
from framework.conformance.suites.scheduling_policy.base import (
    WORKLOADS,
    SchedulingPolicyPart,
    new,
    requests_of,
)
from framework.conformance.worlds.makers import PartMaker, kernel_around
from framework.conformance.worlds.mini_kernel import MiniKernel
from framework.conformance.worlds.told_policy import ToldPolicy
from framework.conformance.worlds.workload import play, random_sizes, seeds, workload
from framework.core.request import Request
from hookspecs.contracts.policy import OrderKey, PolicyCapability, SchedulingPolicy
from hookspecs.types.request import RequestStatus

__all__ = ["Groups"]

STEPS = 60
"""Of a workload, in which requests come, run, end, give up and are preempted."""


class Groups(SchedulingPolicyPart):
    """What a scheduler may rely on, that asks for some of the keys only."""

    @requires(PolicyCapability.DYNAMIC_ORDER)
    def test_keys_stay_in_a_step(
        self, policy: SchedulingPolicy, kernel: MiniKernel, seed: int
    ) -> None:
        """Requires dynamic_order.
        Does: asks for all keys twice in each of some steps, in another order the second time.
        Must: give the same ones in a step.
        """
        requests, rng = requests_of(kernel, seed), random.Random(seed)
        for _ in range(4):
            kernel.now += 10.0
            kernel.view.refresh()
            before = _keys(policy, kernel, rng.sample(requests, len(requests)))
            after = _keys(policy, kernel, rng.sample(requests, len(requests)))
            changed = sorted(name for name, key in before.items() if after[name] != key)
            assert not changed, (
                f"the key of {changed[0]} was {before[changed[0]]}, and {after[changed[0]]} when "
                "it was asked for again in the same step"
            )

    @requires(PolicyCapability.DYNAMIC_ORDER)
    def test_a_group_stays(self, policy: SchedulingPolicy, kernel: MiniKernel, seed: int) -> None:
        """Requires dynamic_order.
        Does: asks for the groups of waiting requests, and again later of those that still wait.
        Must: give what is hashable and equal to itself, and the same ones; None for no group.
        """
        requests = requests_of(kernel, seed)
        before = [_group_of(policy, request) for request in requests]
        for request in requests:
            policy.order_key(request, kernel.view)
        for _ in range(3):
            kernel.step()
        kernel.now += 100.0
        kernel.view.refresh()
        for request, group in zip(requests, before, strict=True):
            if request.status is RequestStatus.WAITING:
                after = _group_of(policy, request)
                assert after == group, (
                    f"{request.request_id} was of the group {group!r}, and while it waited of "
                    f"{after!r}"
                )

    @requires(PolicyCapability.DYNAMIC_ORDER)
    def test_groups_keep_their_order(self, make: PartMaker, subject: Subject, seed: int) -> None:
        """Requires dynamic_order.
        Does: asks for all keys between the steps of workloads with aborts and preemptions, beside a
        policy that holds some requests back, so that later ones start before them.
        Must: give those of a group strictly rising keys, preempted ones first, then by arrival.
        """
        for number in seeds(seed, WORKLOADS // 4):
            policy, beside, rng = new(make, subject), ToldPolicy(), random.Random(number)
            kernel = kernel_around(make, policies=[policy, beside], **random_sizes(number))
            arrivals = workload(number).arrivals
            for step in range(STEPS):
                for arrival in (each for each in arrivals if each.step == step):
                    kernel.add(
                        arrival.prompt,
                        arrival.max_tokens,
                        priority=arrival.priority,
                        tenant=arrival.tenant,
                        deadline=arrival.deadline,
                    )
                if kernel.requests and rng.random() < 0.2:
                    kernel.abort(rng.choice(list(kernel.requests.values())))
                beside.held = {name for name in kernel.requests if rng.random() < 0.3}
                kernel.step()
                if rng.random() < 0.2:
                    kernel.scheduler.preempt_all()
                kernel.now += 0.5
                kernel.view.refresh()
                _expect_order(policy, kernel, rng, f"workload seed {number}, step {step}")

    @requires(PolicyCapability.DYNAMIC_ORDER)
    def test_groups_decide_nothing(self, make: PartMaker, subject: Subject, seed: int) -> None:
        """Requires dynamic_order.
        Does: runs workloads with the policy, and with one that says of no request that it has a
        group, so that all keys are asked for at every step.
        Must: decide the same.
        """
        for number in seeds(seed, WORKLOADS // 4):
            load, sizes = workload(number), random_sizes(number)
            grouped, plain = new(make, subject), new(make, subject)
            plain.order_group = lambda request: None  # type: ignore[method-assign]
            schedules = [
                play(kernel_around(make, policies=[policy], **sizes), load)
                for policy in (grouped, plain)
            ]
            assert schedules[0] == schedules[1], (
                "another schedule when all keys are asked for than when only those of the first "
                f"ones of its groups are (workload seed {number})"
            )


def _group_of(policy: SchedulingPolicy, request: Request) -> Hashable:
    group = policy.order_group(request)
    try:
        hash(group)
    except TypeError as error:
        raise AssertionError(f"order_group gave {group!r}: {error}") from error
    assert group == group, f"order_group gave {group!r}, which is not equal to itself"
    return group


def _keys(
    policy: SchedulingPolicy, kernel: MiniKernel, requests: list[Request]
) -> dict[str, OrderKey]:
    """By request id, asked for in the order given."""
    return {each.request_id: policy.order_key(each, kernel.view) for each in requests}


def _expect_order(
    policy: SchedulingPolicy, kernel: MiniKernel, rng: random.Random, where: str
) -> None:
    """AssertionError when keys of those of a group that wait do not rise."""
    waiting = [each for each in kernel.requests.values() if each.slot < 0]
    keys = _keys(policy, kernel, rng.sample(waiting, len(waiting)))
    groups: dict[Hashable, list[Request]] = defaultdict(list)
    for request in waiting:
        group = _group_of(policy, request)
        if group is not None:
            groups[group].append(request)
    for group, members in groups.items():
        members.sort(key=lambda r: (r.status is not RequestStatus.PREEMPTED, r.arrival))
        for ahead, behind in itertools.pairwise(members):
            assert keys[ahead.request_id] < keys[behind.request_id], (
                f"in the group {group!r} {ahead.request_id} ({ahead.status.name}) comes before "
                f"{behind.request_id} ({behind.status.name}), but their keys are "
                f"{keys[ahead.request_id]} and {keys[behind.request_id]} ({where})"
            )
