"""What a policy answers, and what it must leave alone."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from framework.conformance.subject import Subject
from framework.conformance.suites.scheduling_policy.base import (
    SchedulingPolicyPart,
    new,
    requests_of,
)
from framework.conformance.worlds.makers import PartMaker, kernel_around
from framework.conformance.worlds.mini_kernel import MiniKernel
from framework.core.request import Request
from hookspecs.contracts.policy import Admission, SchedulingPolicy
from hookspecs.types.request import FinishReason, RequestStatus

__all__ = ["Answers"]


class Answers(SchedulingPolicyPart):
    """Answers are of their types, and cost the requests nothing."""

    # Answers

    def test_answers_are_of_their_types(
        self, policy: SchedulingPolicy, kernel: MiniKernel, seed: int
    ) -> None:
        """Requires nothing.
        Does: asks everything that the kernel asks, of waiting requests.
        Must: answer with an Admission, an int or None, ids, a bool or None.
        """
        requests = requests_of(kernel, seed)
        for request in requests:
            policy.order_key(request, kernel.view)
        answers = {type(policy.admit(request, kernel.view)) for request in requests}
        assert answers <= {Admission}, f"admit answered {answers}; it must give an Admission"
        cap = policy.cap_tokens(kernel.view)
        assert cap is None or type(cap) is int, f"cap_tokens answered {cap!r}, no int and not None"
        expired = list(policy.expire(kernel.view))
        ids = {request.request_id for request in requests}
        assert set(expired) <= ids, f"expire named {set(expired) - ids}, which are no requests"
        pushed = {policy.preempts(a, b) for a in requests[:6] for b in requests[:6]}
        assert pushed <= {True, False, None}, f"preempts answered {pushed}"

    def test_victim_is_a_candidate(
        self, policy: SchedulingPolicy, kernel: MiniKernel, seed: int
    ) -> None:
        """Requires nothing.
        Does: asks for a victim among one, two and more running requests.
        Must: name one of them, or None for no opinion.
        """
        running = _running(kernel, policy, seed)
        for count in range(1, len(running) + 1):
            candidates = running[:count]
            victim = policy.select_victim(candidates, kernel.view)
            assert victim is None or victim in candidates, (
                f"select_victim named {getattr(victim, 'request_id', victim)!r}, which is not "
                f"among the {count} candidates"
            )

    def test_no_two_push_each_other_out(
        self, policy: SchedulingPolicy, kernel: MiniKernel, seed: int
    ) -> None:
        """Requires nothing.
        Does: asks of every pair whether one pushes out the other.
        Must: not say yes both ways, nor of a request and itself: they would push each other out
        for ever.
        """
        requests = requests_of(kernel, seed)
        for request in requests:
            policy.order_key(request, kernel.view)
        for index, first in enumerate(requests):
            for second in requests[index:]:
                both = policy.preempts(first, second) and policy.preempts(second, first)
                assert not both, f"{first.request_id} and {second.request_id} push each other out"

    def test_only_waiting_requests_expire(self, make: PartMaker, subject: Subject) -> None:
        """Requires nothing.
        Does: lets deadlines pass of a request that runs and of one that waits.
        Must: not name the one that has started, which is not late.
        """
        policy = new(make, subject)
        kernel = kernel_around(make, max_num_seqs=1, policies=[policy])
        running = kernel.add(3, 50, deadline=kernel.now + 5)
        for _ in range(200):
            if running.status is RequestStatus.RUNNING or running.finished:
                break
            kernel.step()
        kernel.add(3, 2, deadline=kernel.now + 1)
        kernel.now += 1000.0
        kernel.view.refresh()
        named = set(policy.expire(kernel.view))
        assert running.finished or running.request_id not in named, (
            "expire named a request that runs"
        )

    # What it must leave alone

    def test_requests_are_not_changed(
        self, policy: SchedulingPolicy, kernel: MiniKernel, seed: int
    ) -> None:
        """Requires nothing.
        Does: asks everything, and compares the requests before and after.
        Must: leave them as they are; a policy reads.
        """
        requests = requests_of(kernel, seed)
        before = [_facts(request) for request in requests]
        for request in requests:
            policy.order_key(request, kernel.view)
            policy.admit(request, kernel.view)
        list(policy.expire(kernel.view))
        policy.cap_tokens(kernel.view)
        for request, facts in zip(requests, before, strict=True):
            assert _facts(request) == facts, f"the policy changed {request.request_id}"

    def test_finished_requests_are_forgotten(
        self, policy: SchedulingPolicy, kernel: MiniKernel, seed: int
    ) -> None:
        """Requires nothing.
        Does: queues and ends requests, for each reason there is.
        Must: keep no reference to them: an engine serves millions.
        """
        requests = requests_of(kernel, seed)
        for request in requests:
            policy.order_key(request, kernel.view)
            policy.admit(request, kernel.view)
        reasons = list(FinishReason)
        for index, request in enumerate(requests):
            policy.on_finish(request, reasons[index % len(reasons)])
            kernel.abort(request)
        kernel.now += 1.0
        kernel.view.refresh()
        list(policy.expire(kernel.view))
        count = len(requests)
        del requests, request
        kept = _alive_requests()
        assert not kept, f"{len(kept)} of {count} requests are still referenced after on_finish"


def _alive_requests() -> list[Request]:
    gc.collect()
    return [each for each in gc.get_objects() if isinstance(each, Request) and each.finished]


def _running(kernel: MiniKernel, policy: SchedulingPolicy, seed: int) -> Sequence[Request]:
    requests = requests_of(kernel, seed)
    for request in requests:
        policy.order_key(request, kernel.view)
    for _ in range(4):
        kernel.step()
    return list(_in_slots(requests))


def _in_slots(requests: Sequence[Request]) -> Iterator[Request]:
    return (request for request in requests if request.status is RequestStatus.RUNNING)


def _facts(request: Request) -> tuple[Any, ...]:
    return (
        request.request_id,
        request.status,
        request.priority,
        request.tenant,
        request.deadline,
        request.arrival,
        list(request.token_ids),
        msgspec.structs.astuple(request.sampling_params),
    )
