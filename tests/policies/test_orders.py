"""Keys and answers of `fcfs`, `priority` and `deadline`."""

from __future__ import annotations

import math

import msgspec
import pytest

from builtin_plugins.policies.deadline import DeadlinePolicy
from builtin_plugins.policies.fcfs import FcfsPolicy
from builtin_plugins.policies.options import FairShareOptions, PriorityOptions
from builtin_plugins.policies.plugin import plugin
from builtin_plugins.policies.priority import PriorityPolicy
from framework.core.request import Request
from hookspecs.types.request import FinishReason
from tests.mini_kernel import MiniKernel, make_policy


def test_fcfs_adds_nothing_to_the_order() -> None:
    kernel = MiniKernel()
    assert make_policy(FcfsPolicy).order_key(kernel.add(3), kernel.view) == ()


def test_priority_has_no_opinion_on_pushing_out_unless_asked() -> None:
    kernel = MiniKernel()
    low, high = kernel.add(3, priority=2), kernel.add(3, priority=-1)
    quiet = make_policy(PriorityPolicy)
    assert quiet.order_key(high, kernel.view) < quiet.order_key(low, kernel.view)
    assert quiet.preempts(high, low) is None
    urgent = make_policy(PriorityPolicy, PriorityOptions(preempt_running=True))
    assert urgent.preempts(high, low) is True
    assert urgent.preempts(low, high) is False
    assert urgent.preempts(low, low) is False


class Deadlines:
    """A deadline policy with requests of its own making."""

    def __init__(self) -> None:
        self.kernel = MiniKernel()
        self.policy = make_policy(DeadlinePolicy)

    def add(self, deadline: float | None) -> Request:
        request = self.kernel.add(3, deadline=deadline)
        self.policy.order_key(request, self.kernel.view)
        return request

    def expired_at(self, now: float) -> list[str]:
        self.kernel.view.now = now
        return list(self.policy.expire(self.kernel.view))


def test_deadline_orders_those_without_last() -> None:
    case = Deadlines()
    late, none, soon = case.add(9.0), case.add(None), case.add(3.0)
    key = case.policy.order_key
    ordered = sorted((late, none, soon), key=lambda request: key(request, case.kernel.view))
    assert ordered == [soon, late, none]


def test_deadlines_expire_once_and_in_order() -> None:
    case = Deadlines()
    late, _none, soon, later = case.add(4.0), case.add(None), case.add(3.0), case.add(7.0)
    assert case.expired_at(3.0) == []
    assert case.expired_at(5.0) == [soon.request_id, late.request_id]
    assert case.expired_at(6.0) == []
    assert case.expired_at(99.0) == [later.request_id]


def test_asking_for_the_key_again_changes_nothing() -> None:
    case = Deadlines()
    request = case.add(3.0)
    case.policy.order_key(request, case.kernel.view)
    assert case.expired_at(4.0) == [request.request_id]


def test_a_request_that_has_started_does_not_expire() -> None:
    case = Deadlines()
    request = case.add(3.0)
    case.kernel.step()
    assert case.expired_at(4.0) == []
    case.kernel.scheduler.preempt_all()
    case.policy.order_key(request, case.kernel.view)
    assert case.expired_at(5.0) == []


def test_ended_requests_do_not_expire() -> None:
    case = Deadlines()
    requests = [case.add(float(index)) for index in range(300)]
    for request in requests[:299]:
        case.policy.on_finish(request, FinishReason.ABORT)
    assert case.expired_at(1000.0) == [requests[299].request_id]


@pytest.mark.parametrize("weight", [0.0, -1.0, math.nan, math.inf])
def test_weights_must_be_positive_numbers(weight: float) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"weights": {"a": weight}}, FairShareOptions)
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"default_weight": weight}, FairShareOptions)


def test_unknown_options_are_refused() -> None:
    with pytest.raises(msgspec.ValidationError, match="preempt"):
        msgspec.convert({"preempt": True}, PriorityOptions)


def test_the_plugin_offers_four_policies() -> None:
    names = [provider.name for provider in plugin.register_scheduling_policies()]
    assert names == ["fcfs", "priority", "fair_share", "deadline"]
