"""Order, aging and options of the policy, with fakes of what the kernel lends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec
import pytest
from hookspecs import EngineConfig, SamplingParams
from hookspecs.contracts.policy import PolicyCapability, PolicyContext, SchedulerView
from hookspecs.contracts.request_view import RequestView
from hookspecs.types.request import AdapterRef, RequestStatus
from hypothesis import given
from hypothesis import strategies as st

from shortest_prompt_first.options import ShortestPromptFirstOptions
from shortest_prompt_first.plugin import plugin
from shortest_prompt_first.policy import ShortestPromptFirst


@dataclass
class FakeRequest:
    """A waiting request."""

    num_prompt_tokens: int
    arrival_time: float = 0.0
    arrival: int = 0
    request_id: str = "r"
    slot: int = -1
    status: RequestStatus = RequestStatus.WAITING
    sampling_params: SamplingParams = field(default_factory=SamplingParams)
    num_output_tokens: int = 0
    max_total_tokens: int = 1 << 20
    block_hashes: Sequence[bytes] = ()
    priority: int = 0
    tenant: str = ""
    deadline: float | None = None
    num_preemptions: int = 0
    adapter: AdapterRef | None = None
    computes_whole_prompt: bool = False

    @property
    def num_tokens(self) -> int:
        return self.num_prompt_tokens + self.num_output_tokens

    @property
    def token_ids(self) -> Sequence[int]:
        return [0] * self.num_tokens


@dataclass
class FakeView:
    """An engine whose clock stands still."""

    now: float = 0.0
    num_running: int = 0
    num_waiting: int = 0
    free_blocks: int = 0
    total_blocks: int = 0
    recent_step_s: float = 0.0

    def blocks_needed(self, request: RequestView) -> int:
        return 0

    def served_tokens(self, tenant: str) -> int:
        return 0


def policy(aging_tokens_per_s: float = 100.0) -> ShortestPromptFirst:
    options = ShortestPromptFirstOptions(aging_tokens_per_s=aging_tokens_per_s)
    return ShortestPromptFirst(PolicyContext(config=EngineConfig(), options=options))


def ordered(
    of: ShortestPromptFirst, requests: Sequence[FakeRequest], now: float
) -> list[FakeRequest]:
    """In the kernel's order: the policy's key, then arrival."""
    view = FakeView(now)
    return sorted(requests, key=lambda request: (of.order_key(request, view), request.arrival))


def test_the_fakes_are_what_the_kernel_lends() -> None:
    assert isinstance(FakeRequest(1), RequestView)
    assert isinstance(FakeView(), SchedulerView)


def test_short_prompts_come_first() -> None:
    lengths = [900, 30, 400]
    requests = [FakeRequest(length, arrival=i) for i, length in enumerate(lengths)]
    assert [r.num_prompt_tokens for r in ordered(policy(), requests, 0.1)] == [30, 400, 900]


def test_equal_prompts_come_in_the_order_of_arrival() -> None:
    first, second = FakeRequest(50, 1.0, 1), FakeRequest(50, 1.0, 2)
    assert ordered(policy(), [second, first], 1.2) == [first, second]


def test_waiting_makes_up_for_length() -> None:
    long = FakeRequest(1000, arrival_time=0.0, arrival=0)
    short = FakeRequest(300, arrival_time=6.0, arrival=1)
    assert ordered(policy(), [long, short], 6.0) == [short, long]
    shorter_wait = policy(aging_tokens_per_s=200.0)
    assert ordered(shorter_wait, [long, short], 6.0) == [long, short]


def test_order_changes_once_both_have_waited_long_enough() -> None:
    long = FakeRequest(1000, arrival_time=0.0, arrival=0)
    short = FakeRequest(10, arrival_time=5.0, arrival=1)
    assert ordered(policy(), [long, short], 9.9) == [short, long]
    assert ordered(policy(), [long, short], 10.0) == [long, short]


def test_length_is_that_of_the_prompt_also_after_a_preemption() -> None:
    preempted = FakeRequest(
        100, num_output_tokens=500, num_preemptions=1, status=RequestStatus.PREEMPTED
    )
    fresh = FakeRequest(200, arrival=1)
    assert ordered(policy(), [fresh, preempted], 0.1) == [preempted, fresh]


requests_strategy = st.lists(
    st.tuples(st.integers(1, 100_000), st.floats(0, 1000)), min_size=1, max_size=20
)


@given(requests_strategy, st.floats(0.01, 1e6), st.floats(0, 1000))
def test_nobody_overtakes_a_request_that_has_waited_for_its_length(
    arrivals: list[tuple[int, float]], rate: float, wait: float
) -> None:
    arrivals.sort(key=lambda prompt_and_time: prompt_and_time[1])
    requests = [FakeRequest(n, t, arrival=i) for i, (n, t) in enumerate(arrivals)]
    now = requests[-1].arrival_time + wait
    order = ordered(policy(rate), requests, now)
    for request in requests:
        if rate * (now - request.arrival_time) >= request.num_prompt_tokens:
            before = order[: order.index(request)]
            assert all(other.arrival < request.arrival for other in before)


@given(requests_strategy, st.floats(0, 1000))
def test_keys_have_one_shape_and_never_rise_while_waiting(
    arrivals: list[tuple[int, float]], wait: float
) -> None:
    subject = policy()
    for length, time in arrivals:
        request = FakeRequest(length, time)
        (now,) = subject.order_key(request, FakeView(time))
        (later,) = subject.order_key(request, FakeView(time + wait))
        assert 0.0 <= later <= now == length


@pytest.mark.parametrize("rate", [0, -1, 1e7, float("nan"), "fast"])
def test_a_rate_out_of_bounds_is_refused(rate: object) -> None:
    with pytest.raises(msgspec.ValidationError, match="aging_tokens_per_s"):
        msgspec.convert({"aging_tokens_per_s": rate}, ShortestPromptFirstOptions)


def test_an_unknown_option_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError, match="aging"):
        msgspec.convert({"aging": 1}, ShortestPromptFirstOptions)


def test_the_plugin_offers_the_policy_with_its_capability() -> None:
    (provider,) = plugin.register_scheduling_policies()
    assert provider.name == "shortest-prompt-first"
    assert provider.options is ShortestPromptFirstOptions
    assert provider.capabilities == ShortestPromptFirst.capabilities
    assert PolicyCapability.DYNAMIC_ORDER in provider.capabilities
