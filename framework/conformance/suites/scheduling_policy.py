"""Suite of scheduling policies, in a mini kernel and in a real engine."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import pytest

from framework.conformance.base import Conformance, lacking
from framework.conformance.subject import Subject
from framework.conformance.worlds.cost import lines_of
from framework.conformance.worlds.engines import run_prompts
from framework.conformance.worlds.makers import PartMaker, kernel_around
from framework.conformance.worlds.mini_kernel import MiniKernel
from framework.conformance.worlds.workload import play, random_sizes, seeds, workload
from framework.core.request import Request
from hookspecs.config import EngineConfig
from hookspecs.contracts.policy import Admission, PolicyCapability, SchedulingPolicy
from hookspecs.types.request import FinishReason, RequestStatus

__all__ = ["SchedulingPolicyConformance"]

WORKLOADS = 40
"""Random workloads of a test."""
BOUND = 4000
"""Steps in which a workload that needs a few hundred must be done."""


class SchedulingPolicyConformance(Conformance):
    """Scheduling policies decide order, admission, victims and caps, and touch nothing."""

    kind = "scheduling_policy"

    @pytest.fixture
    def make(self, subject: Subject) -> PartMaker:
        """Makes the policy, and the built-in parts around it."""
        return PartMaker(subject)

    @pytest.fixture
    def policy(self, make: PartMaker, subject: Subject) -> SchedulingPolicy:
        """A new policy."""
        return _new(make, subject)

    @pytest.fixture
    def kernel(self, make: PartMaker) -> MiniKernel:
        """A kernel whose scheduler does not know the policy: it lends requests and a view."""
        return kernel_around(make, num_blocks=400, max_num_seqs=32, policies=())

    # Order

    def test_keys_compare(self, policy: SchedulingPolicy, kernel: MiniKernel, seed: int) -> None:
        """Requires nothing.
        Does: asks for the keys of many different requests.
        Must: give tuples of one length whose elements all compare with each other.
        """
        keys = [policy.order_key(request, kernel.view) for request in _requests(kernel, seed)]
        assert all(isinstance(key, tuple) for key in keys), f"order_key gave {keys[0]!r}, no tuple"
        lengths = sorted({len(key) for key in keys})
        assert len(lengths) == 1, f"keys have the lengths {lengths}; all must have one"
        try:
            sorted(keys)
        except TypeError as error:
            raise AssertionError(f"keys can not be compared: {error}") from error
        unequal = [key for key in keys if key != key]
        assert not unequal, f"the key {unequal[:1]} is not equal to itself, as NaN is not"

    @lacking(PolicyCapability.DYNAMIC_ORDER)
    def test_keys_stay(self, policy: SchedulingPolicy, kernel: MiniKernel, seed: int) -> None:
        """Requires a policy that does not declare dynamic_order.
        Does: asks for keys again later, after others were queued.
        Must: give the same ones, since the kernel asks only once.
        """
        requests = _requests(kernel, seed)
        before = [policy.order_key(request, kernel.view) for request in requests]
        kernel.now += 100.0
        for request in _requests(kernel, seed + 1):
            policy.order_key(request, kernel.view)
        after = [policy.order_key(request, kernel.view) for request in requests]
        assert before == after, (
            "a key changed while its request waited; declare the capability dynamic_order, or "
            "keep to what does not change"
        )

    def test_names_do_not_decide(self, make: PartMaker, seed: int) -> None:
        """Requires nothing.
        Does: runs workloads twice, with other request ids the second time.
        Must: decide the same; ids are names, not ranks.
        """
        for number in seeds(seed, WORKLOADS // 4):
            load, sizes = workload(number), random_sizes(number)
            plain = play(kernel_around(make, **sizes), load)
            other = play(kernel_around(make, **sizes), load, prefix="zebra-")
            renamed = [tuple((n.replace("zebra-", "r"), c) for n, c in step) for step in other]
            assert plain == renamed, f"with other ids another schedule (workload seed {number})"

    def test_same_events_same_schedule(self, make: PartMaker, seed: int) -> None:
        """Requires nothing.
        Does: runs workloads twice, each with a new policy.
        Must: decide the same both times.
        """
        for number in seeds(seed, WORKLOADS // 4):
            load, sizes = workload(number), random_sizes(number)
            first, second = (play(kernel_around(make, **sizes), load) for _ in range(2))
            assert first == second, f"two schedules of one workload (seed {number})"

    # Answers

    def test_answers_are_of_their_types(
        self, policy: SchedulingPolicy, kernel: MiniKernel, seed: int
    ) -> None:
        """Requires nothing.
        Does: asks everything that the kernel asks, of waiting requests.
        Must: answer with an Admission, an int or None, ids, a bool or None.
        """
        requests = _requests(kernel, seed)
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
        requests = _requests(kernel, seed)
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
        policy = _new(make, subject)
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
        requests = _requests(kernel, seed)
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
        requests = _requests(kernel, seed)
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

    # In the kernel

    def test_everything_ends(self, make: PartMaker, seed: int) -> None:
        """Requires nothing.
        Does: random workloads with aborts, deadlines and a cache that is too small.
        Must: let every request end once, break no invariant of the kernel, leak no block, and
        starve nobody for longer than a bounded number of steps.
        """
        for number in seeds(seed, WORKLOADS):
            kernel = kernel_around(make, **random_sizes(number))
            load = workload(number)
            play(kernel, load, limit=BOUND)
            assert len(kernel.ended) == len(load.arrivals), "a request ended without a trace"
            in_use = kernel.kv.blocks_in_use()
            assert in_use == 0, f"{in_use} blocks are in use by nobody (workload seed {number})"

    def test_nobody_starves(self, make: PartMaker) -> None:
        """Requires nothing.
        Does: keeps the engine busy with new requests of another tenant, priority and length.
        Must: let the first one start within a bounded number of steps, unless its priority or
        deadline is worse.
        """
        kernel = kernel_around(make, max_num_seqs=1, num_blocks=16)
        first = kernel.add(20, 2, tenant="patient")
        kernel.add(1, 1, tenant="busy")
        for _ in range(BOUND):
            if first.finished or first.status is not RequestStatus.WAITING:
                return
            if kernel.scheduler.num_waiting < 3:
                kernel.add(1, 1, tenant="busy")
            kernel.step()
        raise AssertionError(
            f"a request with a prompt of 20 tokens had not started after {BOUND} steps, while "
            "requests that came later did"
        )

    def test_it_survives_preemption_of_all(self, make: PartMaker, seed: int) -> None:
        """Requires nothing.
        Does: takes slots and blocks from all running requests in the middle of a workload, as a
        pause or a cache reset does.
        Must: let them come back and end.
        """
        kernel = kernel_around(make, num_blocks=24)
        for number in range(10):
            kernel.add(5 + number, 6, tenant=f"t{number % 3}", priority=number % 2)
        for _ in range(6):
            kernel.step()
            kernel.scheduler.preempt_all()
        kernel.run(BOUND)

    def test_it_stacks(self, subject: Subject, seed: int) -> None:
        """Requires nothing.
        Does: runs workloads with the policy before and after `priority`.
        Must: work in both places; what it decides adds to the others.
        """
        name = subject.provider
        for policies in (["priority", name], [name, "priority"]):
            stacked = PartMaker(
                Subject(
                    subject.plugin,
                    "scheduling_policy",
                    name,
                    {**subject.given, "scheduler": {"policies": policies}},
                )
            )
            for number in seeds(seed, WORKLOADS // 8):
                play(kernel_around(stacked, **random_sizes(number)), workload(number), limit=BOUND)

    # In an engine

    def test_tokens_do_not_depend_on_it(self, subject: Subject, seed: int) -> None:
        """Requires nothing.
        Does: generates in a real engine with a small cache, with the policy and with none that
        reorders.
        Must: change when requests run, never what they get.
        """
        small: dict[str, Any] = {"cache": {"num_blocks": 12}}
        with subject.launch(**small) as engine:
            with_policy = run_prompts(engine, seed)
        with subject.launch(**small, scheduler={"policies": ["fcfs"]}) as engine:
            without = run_prompts(engine, seed)
        assert with_policy == without, "the policy changed the tokens of a request"

    # Cost

    def test_a_key_costs_the_same_in_any_crowd(
        self, make: PartMaker, subject: Subject, seed: int
    ) -> None:
        """Requires nothing.
        Does: counts the lines that queueing a request executes, behind 20 and behind 2,000.
        Must: not grow with the number of those that wait (a sort inside of a step may).
        """
        costs = []
        for crowd in (20, 2000):
            policy, kernel = _new(make, subject), kernel_around(make, policies=())
            for _ in range(crowd):
                policy.order_key(kernel.add(1, 1, tenant="crowd"), kernel.view)
            last = kernel.add(1, 1, tenant="crowd")
            costs.append(lines_of(lambda p=policy, r=last, v=kernel.view: p.order_key(r, v)))  # type: ignore[misc]
        small, large = costs
        assert large <= 4 * small + 40, (
            f"order_key of a new request executes {small} lines behind 20 requests, {large} "
            "behind 2,000"
        )


def _alive_requests() -> list[Request]:
    gc.collect()
    return [each for each in gc.get_objects() if isinstance(each, Request) and each.finished]


def _new(make: PartMaker, subject: Subject) -> SchedulingPolicy:
    policy: SchedulingPolicy = make.named("scheduling_policy", subject.provider, EngineConfig())
    return policy


def _requests(kernel: MiniKernel, seed: int) -> list[Request]:
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


def _running(kernel: MiniKernel, policy: SchedulingPolicy, seed: int) -> Sequence[Request]:
    requests = _requests(kernel, seed)
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
