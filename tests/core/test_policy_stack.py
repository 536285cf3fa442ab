"""Policies stack by a fixed rule."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from framework.core.policy_stack import PolicyStack
from hookspecs import EngineConfig
from hookspecs.contracts.policy import Admission, PolicyCapability, PolicyContext, SchedulingPolicy
from hookspecs.errors import ContractViolation
from hookspecs.types.request import FinishReason

VIEW: Any = SimpleNamespace(now=0.0)


def policy(**methods: Any) -> SchedulingPolicy:
    capabilities = methods.pop("capabilities", frozenset())
    body = {name: staticmethod(method) for name, method in methods.items()}
    kind = type("Policy", (SchedulingPolicy,), {**body, "capabilities": capabilities})
    made: SchedulingPolicy = kind(PolicyContext(config=EngineConfig(), plugin="p"))
    return made


def test_keys_concatenate_and_end_with_preempted_first_then_arrival(make_request) -> None:
    stack = PolicyStack(
        [
            policy(order_key=lambda request, view: (request.priority,)),
            policy(),
            policy(order_key=lambda request, view: (request.num_prompt_tokens, "x")),
        ],
        VIEW,
    )
    first, second = make_request(priority=3), make_request([1])
    assert stack.key(first) == (3, 3, "x", 1, 0)
    assert stack.key(second) == (0, 1, "x", 1, 1)
    second.num_preemptions = 1
    assert stack.key(second) == (0, 1, "x", 0, 1)


def test_admit_needs_all(make_request) -> None:
    yes = policy(admit=lambda request, view: Admission.ADMIT)
    no = policy(admit=lambda request, view: Admission.WAIT)
    request = make_request()
    assert PolicyStack([yes, policy()], VIEW).admit(request)
    assert not PolicyStack([yes, no], VIEW).admit(request)


def test_the_smallest_cap_wins_and_is_at_least_one() -> None:
    caps = [policy(cap_tokens=lambda view, cap=cap: cap) for cap in (None, 40, 20)]
    assert PolicyStack(caps, VIEW).cap_tokens(100) == 20
    assert PolicyStack(caps, VIEW).cap_tokens(10) == 10
    assert PolicyStack([policy(cap_tokens=lambda view: -3)], VIEW).cap_tokens(10) == 1
    assert PolicyStack([], VIEW).cap_tokens(10) == 10


def test_the_first_answer_chooses_the_victim(make_request) -> None:
    candidates = [make_request() for _ in range(3)]
    silent = policy(select_victim=lambda candidates, view: None)
    first = policy(select_victim=lambda candidates, view: candidates[0])
    assert PolicyStack([silent, first], VIEW).select_victim(candidates) is candidates[0]
    assert PolicyStack([silent], VIEW).select_victim(candidates) is candidates[2]


def test_a_victim_must_be_a_candidate(make_request) -> None:
    stranger = make_request()
    stack = PolicyStack([policy(select_victim=lambda candidates, view: stranger)], VIEW)
    with pytest.raises(ContractViolation, match="no candidate"):
        stack.select_victim([make_request()])


def test_a_wrong_answer_to_admit_is_named(make_request) -> None:
    stack = PolicyStack([policy(admit=lambda request, view: True)], VIEW)
    with pytest.raises(ContractViolation, match="must be an Admission"):
        stack.admit(make_request())


def test_expire_preempts_and_on_finish_reach_all(make_request) -> None:
    seen: list[str] = []
    stack = PolicyStack(
        [
            policy(
                expire=lambda view: ["a"],
                on_finish=lambda request, reason: seen.append("one"),
                preempts=lambda waiting, running: None,
            ),
            policy(
                expire=lambda view: ["b"],
                on_finish=lambda request, reason: seen.append("two"),
                preempts=lambda waiting, running: True,
            ),
        ],
        VIEW,
    )
    request = make_request()
    assert stack.expire() == ["a", "b"]
    assert stack.preempts(request, request)
    assert not PolicyStack([policy()], VIEW).preempts(request, request)
    stack.on_finish(request, FinishReason.STOP)
    assert seen == ["one", "two"]


def test_dynamic_order_of_one_is_dynamic_order_of_all() -> None:
    dynamic = policy(capabilities=frozenset({PolicyCapability.DYNAMIC_ORDER}))
    assert PolicyStack([policy(), dynamic], VIEW).dynamic_order
    assert not PolicyStack([policy()], VIEW).dynamic_order


def test_a_place_in_a_group_is_what_stands_before_the_moving_key(make_request) -> None:
    def moving(group: Any) -> SchedulingPolicy:
        return policy(
            capabilities=frozenset({PolicyCapability.DYNAMIC_ORDER}),
            order_key=lambda request, view: (view.now,),
            order_group=lambda request: group,
        )

    fixed = policy(order_key=lambda request, view: (request.priority,))
    request = make_request(priority=3)
    stack = PolicyStack([fixed, moving("a"), fixed, moving("b")], VIEW)
    assert stack.place(request) == (("a", "b"), (3, 1, 0))
    request.num_preemptions = 1
    assert stack.place(request) == (("a", "b"), (3, 0, 0))
    assert PolicyStack([moving("a"), moving(None)], VIEW).place(request) is None
    assert PolicyStack([fixed], VIEW).place(request) is None
