"""Waiting requests: who starts, who is passed over, who pushes others out."""

from __future__ import annotations

import pytest

from builtin_plugins.policies.deadline import DeadlinePolicy
from builtin_plugins.policies.options import PriorityOptions
from builtin_plugins.policies.priority import PriorityPolicy
from hookspecs.config import EngineConfig
from hookspecs.contracts.policy import (
    Admission,
    PolicyCapability,
    PolicyContext,
    SchedulerView,
    SchedulingPolicy,
)
from hookspecs.contracts.request_view import RequestView
from hookspecs.types.kv import CachedPrefix
from hookspecs.types.request import FinishReason, RequestStatus
from hookspecs.types.step import SchedulerOutput
from tests.mini_kernel import MiniKernel, make_policy, sliding


def urgent() -> SchedulingPolicy:
    return make_policy(PriorityPolicy, PriorityOptions(preempt_running=True))


def test_at_most_max_num_seqs_run() -> None:
    kernel = MiniKernel(max_num_seqs=2)
    for _ in range(3):
        kernel.add(2, max_tokens=2)
    assert kernel.schedule_of_next_step() == {"r0": 2, "r1": 2}
    assert kernel.scheduler.num_waiting == 1
    assert kernel.schedule_of_next_step() == {"r0": 1, "r1": 1}
    assert kernel.schedule_of_next_step() == {"r2": 2}


def test_a_request_starts_only_when_all_its_tokens_fit() -> None:
    kernel = MiniKernel(num_blocks=5, max_num_batched_tokens=8)
    kernel.add(12, max_tokens=2)
    kernel.add(12, max_tokens=2)
    kernel.step()
    assert kernel.schedule_of_next_step() == {"r0": 4}, "2 blocks are free, r1 needs 3"
    kernel.run()


def test_blocks_that_a_half_computed_prompt_needs_are_not_given_away() -> None:
    kernel = MiniKernel(num_blocks=5, max_num_batched_tokens=8, long_prefill_token_threshold=4)
    kernel.add(12, max_tokens=2)
    second = kernel.add(12, max_tokens=2)
    assert kernel.schedule_of_next_step() == {"r0": 4}, "4 blocks are free, but r0 needs 2 of them"
    assert second.status is RequestStatus.WAITING
    kernel.run()
    assert second.num_preemptions == 0


def test_a_prompt_beyond_the_cache_starts_where_a_window_frees_it() -> None:
    kernel = MiniKernel(num_blocks=6, block_size=2, groups=(sliding(4),), max_num_batched_tokens=4)
    request = kernel.add(40, max_tokens=3)
    kernel.run()
    assert request.num_output_tokens == 3


def test_prefix_hits_count_as_room() -> None:
    kernel = MiniKernel(num_blocks=5)
    shared = list(range(8))
    kernel.add([*shared, 1], max_tokens=4)
    kernel.step()
    kernel.add([*shared, 2], max_tokens=2)
    assert kernel.schedule_of_next_step() == {"r0": 1, "r1": 1}
    kernel.add([*shared, 3, *range(50, 60)], max_tokens=1)
    assert kernel.schedule_of_next_step() == {"r0": 1, "r1": 1}
    kernel.run()


def test_a_big_request_is_not_overtaken_forever() -> None:
    kernel = MiniKernel(num_blocks=6, max_num_seqs=8)
    for _ in range(4):
        kernel.add(3, max_tokens=4)
    kernel.step()
    big = kernel.add(20, max_tokens=2)
    for _ in range(10):
        kernel.add(3, max_tokens=4)
        kernel.step()
        if big.status is RequestStatus.RUNNING:
            break
    assert big.status is RequestStatus.RUNNING
    kernel.run()


class OneAtATime(SchedulingPolicy):
    """Admits tenant `slow` only when nothing runs."""

    def admit(self, request: RequestView, view: SchedulerView) -> Admission:
        if request.tenant == "slow" and view.num_running:
            return Admission.WAIT
        return Admission.ADMIT


def test_those_behind_a_request_that_is_not_admitted_are_considered() -> None:
    kernel = MiniKernel(policies=[make_policy(OneAtATime)])
    kernel.add(2, max_tokens=2)
    slow = kernel.add(2, max_tokens=2, tenant="slow")
    kernel.add(2, max_tokens=2)
    assert kernel.schedule_of_next_step() == {"r0": 2, "r2": 2}
    assert slow.status is RequestStatus.WAITING
    kernel.run()
    assert kernel.ended["r1"] is FinishReason.LENGTH


class Gate(SchedulingPolicy):
    """Orders by priority, and holds back the tenants that are in `held`."""

    def __init__(self, context: PolicyContext) -> None:
        super().__init__(context)
        self.held = {"slow"}
        self.asked: list[str] = []

    def order_key(self, request: RequestView, view: SchedulerView) -> tuple[int]:
        return (request.priority,)

    def admit(self, request: RequestView, view: SchedulerView) -> Admission:
        self.asked.append(request.request_id)
        return Admission.WAIT if request.tenant in self.held else Admission.ADMIT


class MovingGate(Gate):
    """The same, but asks for its keys at every step."""

    capabilities = frozenset({PolicyCapability.DYNAMIC_ORDER})


def gated(policy: type[Gate], num_held: int) -> tuple[MiniKernel, Gate]:
    gate = policy(PolicyContext(config=EngineConfig()))
    kernel = MiniKernel(num_blocks=64, policies=[gate])
    for _ in range(num_held):
        kernel.add(2, tenant="slow")
    return kernel, gate


@pytest.mark.parametrize("policy", [Gate, MovingGate])
def test_whoever_waits_behind_many_that_are_held_back_has_its_turn(policy: type[Gate]) -> None:
    kernel, gate = gated(policy, 600)
    last = kernel.add(2, max_tokens=1)
    lookups = []
    kernel.kv.lookup = lambda request: lookups.append(request) or CachedPrefix()  # type: ignore
    turns = []
    for _ in range(8):
        gate.asked.clear()
        kernel.step()
        assert len(gate.asked) <= 256
        assert gate.asked[:64] == [f"r{index}" for index in range(64)]
        turns.append(set(gate.asked))
        if last.finished:
            break
    assert last.finished and len(turns) == 3, "64 at the front, and 192 others at each step"
    assert set.union(*turns) == {f"r{index}" for index in range(601)}
    assert lookups == [last], "what is held back is not searched for in the cache"
    again = set()
    for _ in range(4):
        gate.asked.clear()
        kernel.step()
        again.update(gate.asked)
    assert again == {f"r{index}" for index in range(600)}, "then turns begin anew"


@pytest.mark.parametrize("policy", [Gate, MovingGate])
def test_the_order_counts_while_turns_are_taken(policy: type[Gate]) -> None:
    kernel, gate = gated(policy, 600)
    kernel.step()
    urgent_one = kernel.add(2, max_tokens=9, priority=-1)
    late = kernel.add(2, max_tokens=9, priority=1)
    assert list(kernel.schedule_of_next_step()) == [urgent_one.request_id]
    assert late.slot < 0
    gate.held.clear()
    started = list(kernel.schedule_of_next_step())
    assert started == [urgent_one.request_id, *(f"r{index}" for index in range(7))]


def test_requests_that_leave_the_queue_do_not_take_the_turn_of_others() -> None:
    kernel, gate = gated(Gate, 400)
    kernel.step()
    for index in range(100, 300):
        kernel.abort(kernel.requests[f"r{index}"])
    gate.asked.clear()
    kernel.step()
    assert set(gate.asked) >= {f"r{index}" for index in range(300, 400)}


def test_one_without_room_holds_back_those_behind_it_and_not_those_before_it() -> None:
    kernel, gate = gated(Gate, 300)
    running = kernel.add(100, max_tokens=60, priority=-1)
    kernel.step()
    big = kernel.add(200, max_tokens=1, priority=1)
    small = kernel.add(2, max_tokens=1, priority=2)
    for _ in range(4):
        kernel.step()
    assert (running.status, big.status) == (RequestStatus.RUNNING, RequestStatus.WAITING)
    assert small.status is RequestStatus.WAITING
    gate.held.clear()
    assert list(kernel.schedule_of_next_step())[1:] == [f"r{index}" for index in range(7)]


def test_priority_orders_the_queue() -> None:
    kernel = MiniKernel(max_num_seqs=1, policies=[make_policy(PriorityPolicy)])
    for priority in (1, 2, 0, 1):
        kernel.add(2, max_tokens=1, priority=priority)
    kernel.run()
    assert list(kernel.ended) == ["r2", "r0", "r3", "r1"]


def test_nobody_starts_in_a_step_that_ran_out_of_blocks() -> None:
    kernel = MiniKernel(num_blocks=4, policies=[make_policy(PriorityPolicy)])
    kernel.add(7, max_tokens=8, priority=0)
    kernel.add(7, max_tokens=8, priority=2)
    kernel.step()
    kernel.step()
    kernel.add(2, max_tokens=2, priority=1)
    assert kernel.schedule_of_next_step() == {"r0": 1}, "r1 was preempted, and r2 must wait"
    assert kernel.schedule_of_next_step() == {"r0": 1, "r2": 2}
    kernel.run()


def test_an_urgent_request_takes_a_slot_in_the_same_step() -> None:
    kernel = MiniKernel(max_num_seqs=2, policies=[urgent()])
    kernel.add(4, max_tokens=9, priority=1)
    low = kernel.add(4, max_tokens=9, priority=2)
    kernel.step()
    kernel.add(4, max_tokens=2, priority=0)
    outputs: list[SchedulerOutput] = []
    kernel.on_scheduled = outputs.append
    assert kernel.scheduled(kernel.step()) == {"r0": 1, "r2": 4}
    assert outputs[0].preempted_request_ids == ["r1"]
    assert [new.request_id for new in outputs[0].new_requests] == ["r2"]
    assert low.status is RequestStatus.PREEMPTED
    kernel.run()
    assert low.num_output_tokens == 9


def test_an_urgent_request_takes_blocks_and_tokens() -> None:
    kernel = MiniKernel(num_blocks=8, max_num_batched_tokens=8, policies=[urgent()])
    kernel.add(16, max_tokens=2, priority=1)
    kernel.add(16, max_tokens=2, priority=2)
    kernel.step()
    kernel.add(20, max_tokens=2, priority=0)
    # Blocks: 2 used, 6 free, 2 owed to r0. Tokens: r0 would take all 8.
    assert kernel.schedule_of_next_step() == {"r2": 8}
    kernel.run()
    assert next(iter(kernel.ended)) == "r2"


def test_nobody_is_pushed_out_in_vain() -> None:
    kernel = MiniKernel(num_blocks=6, policies=[urgent()])
    kernel.add(12, max_tokens=9, priority=0)
    low = kernel.add(4, max_tokens=5, priority=2)
    kernel.step()
    high = kernel.add(20, max_tokens=2, priority=1)
    kernel.step()
    assert high.status is RequestStatus.WAITING, "it needs 5 blocks, and r0 keeps 4 of 6"
    assert low.status is RequestStatus.RUNNING
    kernel.run()


def test_equals_do_not_push_each_other_out() -> None:
    kernel = MiniKernel(max_num_seqs=1, policies=[urgent()])
    kernel.add(4, max_tokens=5, priority=1)
    kernel.step()
    kernel.add(4, max_tokens=5, priority=1)
    kernel.run()
    assert list(kernel.ended) == ["r0", "r1"]


class Pushy(SchedulingPolicy):
    """Latest arrival first, and everybody may push out everybody."""

    def order_key(self, request: RequestView, view: SchedulerView) -> tuple[int]:
        return (-request.arrival,)

    def preempts(self, waiting: RequestView, running: RequestView) -> bool | None:
        return True


def test_pushing_out_ends() -> None:
    kernel = MiniKernel(max_num_seqs=1, policies=[make_policy(Pushy)])
    requests = [kernel.add(3, max_tokens=5)]
    for _ in range(4):
        kernel.step()
        requests.append(kernel.add(3, max_tokens=5))
    kernel.run(limit=60)
    assert list(kernel.ended) == ["r4", "r3", "r2", "r1", "r0"]
    assert all(request.num_preemptions <= 1 for request in requests)


class AlwaysPush(SchedulingPolicy):
    """Adds nothing to the order, and lets everybody push out everybody."""

    def preempts(self, waiting: RequestView, running: RequestView) -> bool | None:
        return True


def test_nobody_pushes_out_what_comes_before_it() -> None:
    kernel = MiniKernel(max_num_seqs=1, policies=[make_policy(AlwaysPush)])
    requests = [kernel.add(3, max_tokens=5) for _ in range(2)]
    kernel.run()
    assert list(kernel.ended) == ["r0", "r1"]
    assert [request.num_preemptions for request in requests] == [0, 0]


def test_a_preempted_request_pushes_nobody_out() -> None:
    kernel = MiniKernel(num_blocks=4, policies=[make_policy(AlwaysPush)])
    first, second = kernel.add(7, max_tokens=8), kernel.add(7, max_tokens=8)
    kernel.run()
    assert (first.num_preemptions, second.num_preemptions) == (0, 1)


class WaitingFirst(AlwaysPush):
    """A request loses its place as soon as it runs."""

    capabilities = frozenset({PolicyCapability.DYNAMIC_ORDER})

    def order_key(self, request: RequestView, view: SchedulerView) -> tuple[bool]:
        return (request.status is RequestStatus.RUNNING,)


def test_what_starts_in_a_step_is_not_pushed_out_in_it() -> None:
    kernel = MiniKernel(max_num_seqs=1, policies=[make_policy(WaitingFirst)])
    kernel.add(3)
    kernel.add(3)
    assert kernel.schedule_of_next_step() == {"r0": 3}
    assert kernel.schedule_of_next_step() == {"r1": 3}
    kernel.run(limit=20)


def test_what_is_pushed_out_in_a_step_does_not_start_in_it() -> None:
    kernel = MiniKernel(max_num_batched_tokens=8, policies=[urgent()])
    kernel.add(24, priority=1)
    kernel.step()
    kernel.add(3, priority=2)
    kernel.add(3, priority=0)
    # r0 would take all tokens and gives them up. r2 leaves some, for r0 but not in this step.
    outputs: list[SchedulerOutput] = []
    kernel.on_scheduled = outputs.append
    kernel.step()
    assert outputs[0].preempted_request_ids == ["r0"]
    assert [new.request_id for new in outputs[0].new_requests] == ["r2"]
    assert kernel.schedule_of_next_step() == {"r2": 1, "r0": 7}
    kernel.run()


def test_a_request_too_big_for_the_cache_fails_and_blocks_nobody() -> None:
    kernel = MiniKernel(num_blocks=2)
    kernel.add(20, fits=False)
    kernel.add(3, max_tokens=2)
    kernel.run()
    assert kernel.ended == {"r0": FinishReason.ERROR, "r1": FinishReason.LENGTH}


def test_a_request_that_waits_past_its_deadline_ends_once() -> None:
    kernel = MiniKernel(max_num_seqs=1, policies=[make_policy(DeadlinePolicy)])
    kernel.add(4, max_tokens=9, deadline=100.0)
    kernel.step()
    late = kernel.add(4, deadline=kernel.now + 2.5)
    for _ in range(2):
        kernel.step()
        assert late.status is RequestStatus.WAITING
    kernel.step()
    assert kernel.ended == {late.request_id: FinishReason.TIMEOUT}
    assert kernel.scheduler.num_waiting == 0
    kernel.run()


def test_a_deadline_that_passes_is_checked_before_anything_starts() -> None:
    kernel = MiniKernel(policies=[make_policy(DeadlinePolicy)])
    kernel.add(4, deadline=kernel.now + 0.5)
    assert kernel.schedule_of_next_step() == {}
    assert kernel.ended == {"r0": FinishReason.TIMEOUT}


@pytest.mark.parametrize("ended_by", ["timeout", "refusal", "growth"])
def test_nothing_stays_of_a_request_that_the_scheduler_ended(ended_by: str) -> None:
    """Another may have its id: it can be pushed out, and it ends once."""
    kernel = MiniKernel(num_blocks=8, policies=[make_policy(DeadlinePolicy), urgent()])
    if ended_by == "timeout":
        kernel.add(4, deadline=kernel.now + 0.5)
    else:
        kernel.add(40 if ended_by == "refusal" else 30, max_tokens=20, fits=False)
    kernel.run()
    assert kernel.ended.pop("r0") is not FinishReason.LENGTH
    again = kernel.add(20, max_tokens=8, priority=2, request_id="r0")
    kernel.step()
    kernel.add(20, max_tokens=2, priority=1)
    assert kernel.schedule_of_next_step() == {"r2": 20}
    assert again.status is RequestStatus.PREEMPTED
    kernel.run()
    assert kernel.ended["r0"] is FinishReason.LENGTH


def test_abort_of_a_waiting_request() -> None:
    kernel = MiniKernel(max_num_seqs=1)
    kernel.add(4, max_tokens=3)
    waiting = kernel.add(4)
    kernel.step()
    kernel.abort(waiting)
    assert kernel.scheduler.num_waiting == 0
    kernel.run()
    assert list(kernel.ended.values()) == [FinishReason.ABORT, FinishReason.LENGTH]


def test_many_aborted_requests_leave_the_order_intact() -> None:
    kernel = MiniKernel(max_num_seqs=1)
    requests = [kernel.add(2, max_tokens=1) for _ in range(300)]
    for request in requests[:290]:
        kernel.abort(request)
    kernel.run()
    assert list(kernel.ended)[290:] == [request.request_id for request in requests[290:]]


def test_the_same_requests_make_the_same_schedule() -> None:
    def run() -> list[tuple[list[int], list[int]]]:
        kernel = MiniKernel(num_blocks=9, max_num_seqs=4, policies=[urgent()])
        steps: list[tuple[list[int], list[int]]] = []
        kernel.on_scheduled = lambda output: steps.append(
            (output.slots.tolist(), output.num_scheduled_tokens.tolist())
        )
        for index in range(12):
            kernel.add(3 + index % 5, max_tokens=1 + index % 7, priority=index % 3)
            kernel.step()
        kernel.run()
        return steps

    assert run() == run()
