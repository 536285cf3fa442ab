"""`fair_share`: shares by weight, no credit for pauses, nobody starves."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builtin_plugins.policies.fair_share import FairSharePolicy
from builtin_plugins.policies.options import FairShareOptions
from hookspecs.contracts.policy import OrderKey, SchedulerView
from hookspecs.contracts.request_view import RequestView
from hookspecs.types.request import FinishReason, RequestStatus
from tests.mini_kernel import MiniKernel, make_policy


def busy_kernel(weights: dict[str, float] | None = None, max_num_seqs: int = 2) -> MiniKernel:
    options = FairShareOptions(weights=weights or {})
    return MiniKernel(
        num_blocks=64,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=16,
        policies=[make_policy(FairSharePolicy, options)],
    )


def keep_busy(kernel: MiniKernel, tenant: str, prompt: int = 4, max_tokens: int = 4) -> None:
    """Have at least four requests of a tenant in the engine."""
    present = sum(request.tenant == tenant for request in kernel.requests.values())
    for _ in range(4 - present):
        kernel.add(prompt, max_tokens=max_tokens, tenant=tenant)


def test_backlogged_tenants_get_tokens_in_proportion_to_their_weights() -> None:
    kernel = busy_kernel({"a": 3.0, "b": 1.0})
    for _ in range(600):
        keep_busy(kernel, "a")
        keep_busy(kernel, "b", prompt=9, max_tokens=2)
        kernel.step()
    assert abs(kernel.served["a"] / kernel.served["b"] - 3.0) < 0.15


def test_a_tenant_of_many_requests_does_not_crowd_out_one_of_few() -> None:
    kernel = busy_kernel()
    for _ in range(60):
        kernel.add(4, max_tokens=4, tenant="crowd")
    kernel.step()
    single = kernel.add(4, max_tokens=4, tenant="single")
    for _ in range(12):
        kernel.step()
    assert kernel.ended.get(single.request_id) is FinishReason.LENGTH
    assert len(kernel.requests) > 40


def test_one_step_that_starts_several_spreads_them_over_tenants() -> None:
    kernel = busy_kernel(max_num_seqs=4)
    for _ in range(6):
        kernel.add(4, tenant="a")
    for _ in range(6):
        kernel.add(4, tenant="b")
    assert sorted(kernel.schedule_of_next_step()) == ["r0", "r1", "r6", "r7"]


def test_weights_hold_within_one_step() -> None:
    kernel = busy_kernel({"a": 3.0}, max_num_seqs=4)
    for tenant in "ab":
        for _ in range(6):
            kernel.add(4, tenant=tenant)
    assert sorted(kernel.schedule_of_next_step()) == ["r0", "r1", "r2", "r6"]


def test_a_pause_earns_no_credit() -> None:
    kernel = busy_kernel()
    for _ in range(200):
        keep_busy(kernel, "steady")
        kernel.step()
    before = dict(kernel.served)
    for _ in range(200):
        keep_busy(kernel, "steady")
        keep_busy(kernel, "newcomer")
        kernel.step()
    gained = kernel.served["steady"] - before["steady"]
    assert abs(gained / kernel.served["newcomer"] - 1.0) < 0.1


def test_use_before_a_pause_is_not_forgotten() -> None:
    kernel = busy_kernel()
    for _ in range(60):
        keep_busy(kernel, "b")
        kernel.step()
    before = kernel.served["b"]
    kernel.add(200, max_tokens=1, tenant="a")
    for _ in range(40):
        keep_busy(kernel, "b")
        kernel.step()
    assert not any(request.tenant == "a" for request in kernel.requests.values())
    used = kernel.served["a"] - (kernel.served["b"] - before)
    assert used > 50, "a is ahead when it pauses"
    returning = kernel.add(4, max_tokens=2, tenant="a")
    for _ in range(4):
        keep_busy(kernel, "b")
        kernel.step()
    assert returning.request_id in kernel.requests and returning.slot < 0


def test_with_nobody_else_a_newcomer_starts_where_the_last_one_left() -> None:
    kernel = busy_kernel(max_num_seqs=1)
    kernel.add(50, max_tokens=1, tenant="a")
    kernel.run()
    for _ in range(6):
        kernel.add(4, max_tokens=1, tenant="b")
        kernel.add(4, max_tokens=1, tenant="a")
    kernel.run()
    order = [int(name[1:]) % 2 for name in list(kernel.ended)[1:7]]
    assert sum(order) == 3, "both take turns: b owes nothing and is owed nothing"


def test_what_is_computed_again_after_a_preemption_is_not_charged_again() -> None:
    kernel = MiniKernel(
        num_blocks=64,
        max_num_seqs=2,
        policies=[make_policy(FairSharePolicy, FairShareOptions())],
        enable_prefix_caching=False,
    )
    scheduled = 0
    finished = {"long": 0, "short": 0}
    for number in range(400):
        keep_busy(kernel, "long", prompt=16, max_tokens=8)
        keep_busy(kernel, "short", prompt=2, max_tokens=2)
        present = list(kernel.requests.values())
        scheduled += kernel.step().total_num_scheduled_tokens
        for request in present:
            finished[request.tenant] += (request.num_tokens - 1) * request.finished
        if number % 4 == 3:
            kernel.scheduler.preempt_all()
    assert scheduled > 1.5 * sum(kernel.served.values()), "a third and more was computed again"
    assert abs(finished["long"] / finished["short"] - 1.0) < 0.1


def test_a_preempted_request_is_not_charged_in_advance_for_what_it_has_paid() -> None:
    kernel = busy_kernel(max_num_seqs=2)
    kernel.add(16, max_tokens=9, tenant="a")
    kernel.add(20, max_tokens=9, tenant="b")
    for _ in range(3):
        kernel.step()
    assert kernel.served == {"a": 18, "b": 20}
    kernel.scheduler.preempt_all()
    kernel.add(3, max_tokens=9, tenant="b")
    kernel.add(3, max_tokens=9, tenant="a")
    assert sorted(kernel.schedule_of_next_step()) == ["r0", "r3"]


def test_requests_of_one_tenant_keep_their_order() -> None:
    kernel = busy_kernel(max_num_seqs=1)
    for _ in range(5):
        kernel.add(3, max_tokens=1, tenant="a")
    kernel.run()
    assert list(kernel.ended) == ["r0", "r1", "r2", "r3", "r4"]


@settings(max_examples=30, deadline=None)
@given(
    weights=st.lists(st.floats(0.1, 10.0), min_size=2, max_size=4),
    lengths=st.lists(st.tuples(st.integers(1, 12), st.integers(1, 6)), min_size=4, max_size=4),
)
def test_backlogged_tenants_stay_close(
    weights: list[float], lengths: list[tuple[int, int]]
) -> None:
    names = "abcd"[: len(weights)]
    kernel = busy_kernel(dict(zip(names, weights, strict=True)))
    worst = 0.0
    for _ in range(150):
        for name, (prompt, max_tokens) in zip(names, lengths, strict=False):
            keep_busy(kernel, name, prompt, max_tokens)
        kernel.step()
        counters = [
            kernel.served[name] / weight for name, weight in zip(names, weights, strict=True)
        ]
        worst = max(worst, max(counters) - min(counters))
    # As in the paper, the difference is bounded by what can be in the engine at once.
    in_engine = kernel.table.num_running or 2
    largest = max(prompt + max_tokens for prompt, max_tokens in lengths)
    assert worst <= 2 * max(in_engine, 2) * largest / min(weights)


@settings(max_examples=60, deadline=None)
@given(choices=st.randoms(use_true_random=False))
def test_keys_of_a_tenant_grow_by_what_will_be_charged(choices: random.Random) -> None:
    """In whatever order they are asked for, and whatever happened before."""
    policy = make_policy(FairSharePolicy, FairShareOptions(weights={"a": 4.0}))
    kernel = MiniKernel(num_blocks=24, max_num_seqs=3, policies=[policy])
    for _ in range(25):
        action = choices.randrange(6)
        if action < 3:
            kernel.add(
                choices.randrange(1, 9), choices.randrange(1, 9), tenant=choices.choice("ab")
            )
        elif action == 3 and kernel.requests:
            kernel.abort(choices.choice(list(kernel.requests.values())))
        elif action == 4:
            kernel.scheduler.preempt_all()
        else:
            kernel.step()
        kernel.now += 1.0
        kernel.view.refresh()
        for tenant, weight in (("a", 4.0), ("b", 1.0)):
            waiting = [
                request
                for request in kernel.requests.values()
                if request.tenant == tenant and request.status is not RequestStatus.RUNNING
            ]
            waiting.sort(key=lambda r: (r.status is not RequestStatus.PREEMPTED, r.arrival))
            keys: dict[str, float] = {}
            for request in choices.sample(waiting, len(waiting)):
                (keys[request.request_id],) = policy.order_key(request, kernel.view)
                assert policy.order_group(request) == tenant
            for before, after in pairwise(waiting):
                unpaid = 1 if before.num_output_tokens else before.num_tokens
                grown = keys[after.request_id] - keys[before.request_id]
                assert grown == pytest.approx(unpaid / weight)


def test_what_starts_keeps_its_key_until_the_step_is_over() -> None:
    """So that running requests do not change their order while more are started."""
    asked: list[tuple[float, str, float]] = []

    class Heard(FairSharePolicy):
        def order_key(self, request: RequestView, view: SchedulerView) -> OrderKey:
            key = super().order_key(request, view)
            asked.append((view.now, request.request_id, key[0]))
            return key

    policy = make_policy(Heard, FairShareOptions())
    kernel = MiniKernel(num_blocks=64, max_num_seqs=4, max_num_batched_tokens=16, policies=[policy])
    for _ in range(3):
        kernel.add(4, tenant="a")
    kernel.step()
    for request in kernel.requests.values():
        assert request.status is RequestStatus.RUNNING
        policy.order_key(request, kernel.view)
    found: dict[tuple[float, str], set[float]] = {}
    for now, request_id, key in asked:
        found.setdefault((now, request_id), set()).add(key)
    assert all(len(keys) == 1 for keys in found.values())
    assert {key for now, _, key in asked if now == kernel.view.now} == {0.0, 4.0, 8.0}
