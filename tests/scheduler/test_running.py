"""Running requests: who gets tokens, who gets blocks, who is preempted."""

from __future__ import annotations

from collections.abc import Sequence

from builtin_plugins.policies.priority import PriorityPolicy
from hookspecs.contracts.policy import SchedulerView, SchedulingPolicy
from hookspecs.contracts.request_view import RequestView
from hookspecs.types.request import FinishReason, RequestStatus
from hookspecs.types.step import SchedulerOutput
from tests.mini_kernel import FULL, MiniKernel, make_policy, sliding


def test_prompts_are_computed_in_chunks_that_fill_the_budget() -> None:
    kernel = MiniKernel(max_num_batched_tokens=8)
    kernel.add(12)
    kernel.add(10)
    assert kernel.schedule_of_next_step() == {"r0": 8}
    assert kernel.schedule_of_next_step() == {"r0": 4, "r1": 4}
    assert kernel.schedule_of_next_step() == {"r0": 1, "r1": 6}
    assert kernel.schedule_of_next_step() == {"r0": 1, "r1": 1}


def test_a_long_prompt_leaves_room_for_others_under_the_threshold() -> None:
    kernel = MiniKernel(max_num_batched_tokens=8, long_prefill_token_threshold=3)
    kernel.add(8)
    kernel.add(2)
    assert kernel.schedule_of_next_step() == {"r0": 3, "r1": 2}
    assert kernel.schedule_of_next_step() == {"r0": 3, "r1": 1}
    assert kernel.schedule_of_next_step() == {"r0": 2, "r1": 1}


def test_running_requests_come_before_waiting_ones() -> None:
    kernel = MiniKernel(max_num_batched_tokens=4)
    kernel.add(4, max_tokens=8)
    kernel.step()
    kernel.add(9)
    assert kernel.schedule_of_next_step() == {"r0": 1, "r1": 3}


def test_rows_sample_when_they_reach_their_last_token() -> None:
    kernel = MiniKernel(max_num_batched_tokens=8)
    kernel.add(6)
    kernel.add(6)
    outputs: list[SchedulerOutput] = []
    kernel.on_scheduled = outputs.append
    kernel.step()
    kernel.step()
    assert outputs[0].samples.tolist() == [True, False]
    assert outputs[1].samples.tolist() == [True, True]
    assert outputs[1].num_computed_tokens.tolist() == [6, 2]


def test_a_policy_caps_the_tokens_of_a_step() -> None:
    class Slow(SchedulingPolicy):
        def cap_tokens(self, view: SchedulerView) -> int | None:
            return 3

    kernel = MiniKernel(policies=[make_policy(Slow)])
    kernel.add(5)
    kernel.add(5)
    assert kernel.schedule_of_next_step() == {"r0": 3}
    assert kernel.schedule_of_next_step() == {"r0": 2, "r1": 1}


def test_new_blocks_are_reported_only_in_steps_that_have_some() -> None:
    kernel = MiniKernel(block_size=2, groups=(FULL, sliding(64)))
    kernel.add(3, max_tokens=6)
    kernel.add(4, max_tokens=6)
    outputs: list[SchedulerOutput] = []
    kernel.on_scheduled = outputs.append
    for _ in range(3):
        kernel.step()
    assert [len(new.block_ids) for new in outputs[0].new_requests] == [2, 2]
    assert outputs[0].new_blocks == ()
    second = outputs[1].new_blocks
    assert [columns.slots.tolist() for columns in second] == [[1], [1]]
    assert [columns.indptr.tolist() for columns in second] == [[0, 1], [0, 1]]
    assert len({int(columns.block_ids[0]) for columns in second}) == 2
    assert [columns.slots.tolist() for columns in outputs[2].new_blocks] == [[0], [0]]


def test_the_last_in_the_order_is_preempted_and_resumes_before_later_arrivals() -> None:
    kernel = MiniKernel(num_blocks=4)
    first, second = kernel.add(7, max_tokens=8), kernel.add(7, max_tokens=8)
    kernel.step()
    third = kernel.add(3, max_tokens=2)
    kernel.step()
    outputs: list[SchedulerOutput] = []
    kernel.on_scheduled = outputs.append
    assert kernel.scheduled(kernel.step()) == {"r0": 1}
    assert outputs[0].preempted_request_ids == ["r1"]
    assert outputs[0].new_requests == [], "nobody starts in a step that preempts"
    assert second.status is RequestStatus.PREEMPTED
    assert third.status is RequestStatus.WAITING
    starts: list[str] = []
    kernel.on_scheduled = lambda output: starts.extend(n.request_id for n in output.new_requests)
    kernel.run()
    assert starts == ["r1", "r2"]
    assert (first.num_preemptions, second.num_preemptions) == (0, 1)


def test_victims_are_taken_in_queue_order() -> None:
    kernel = MiniKernel(num_blocks=4, block_size=4)
    for _ in range(4):
        kernel.add(3, max_tokens=13)
    outputs = [kernel.step() for _ in range(3)]
    assert [name for step in outputs for name in step.preempted_request_ids] == ["r3", "r2"]


def test_a_request_that_is_last_itself_is_preempted_and_others_go_on() -> None:
    kernel = MiniKernel(num_blocks=3)
    kernel.add(5, max_tokens=3)
    last = kernel.add(4, max_tokens=3)
    assert kernel.schedule_of_next_step() == {"r0": 5, "r1": 4}
    assert kernel.schedule_of_next_step() == {"r0": 1}
    assert last.status is RequestStatus.PREEMPTED
    kernel.run()
    assert last.num_output_tokens == 3


class FirstCandidate(SchedulingPolicy):
    """Preempts whoever comes first among those that may be preempted."""

    def select_victim(
        self, candidates: Sequence[RequestView], view: SchedulerView
    ) -> RequestView | None:
        return candidates[0]


def test_a_victim_that_was_planned_already_is_taken_back() -> None:
    kernel = MiniKernel(num_blocks=7, policies=[make_policy(FirstCandidate)])
    kernel.add(3, max_tokens=20)
    kernel.add(8, max_tokens=12)
    kernel.add(12, max_tokens=12)
    assert kernel.schedule_of_next_step() == {"r0": 3, "r1": 8, "r2": 12}
    # One block is free; r1 gets it, r2 needs one too: r1's row goes, with its block.
    outputs: list[SchedulerOutput] = []
    kernel.on_scheduled = outputs.append
    kernel.step()
    assert outputs[0].preempted_request_ids == ["r1"]
    assert outputs[0].slots.tolist() == [0, 2]
    assert outputs[0].new_blocks[0].slots.tolist() == [2]


def test_the_first_in_the_order_is_never_preempted() -> None:
    kernel = MiniKernel(
        num_blocks=6, policies=[make_policy(PriorityPolicy), make_policy(FirstCandidate)]
    )
    others = [kernel.add(3, max_tokens=20, priority=1) for _ in range(3)]
    first = kernel.add(3, max_tokens=20, priority=0)
    for _ in range(20):
        kernel.step()
    assert list(kernel.ended) == [first.request_id]
    assert first.num_preemptions == 0
    assert any(request.num_preemptions for request in others)
    kernel.run()


def test_preempt_all_frees_everything_and_hits_bring_it_back() -> None:
    kernel = MiniKernel(block_size=4)
    request = kernel.add(9, max_tokens=4)
    kernel.step()
    kernel.step()
    kernel.scheduler.preempt_all()
    assert kernel.kv.blocks_in_use() == 0
    assert kernel.scheduler.num_running == 0 and kernel.scheduler.num_waiting == 1
    outputs: list[SchedulerOutput] = []
    kernel.on_scheduled = outputs.append
    kernel.step()
    new = outputs[0].new_requests[0]
    assert new.token_ids == request.token_ids[:11]
    assert new.num_prompt_tokens == 9
    assert new.num_computed_tokens == 8
    assert outputs[0].num_scheduled_tokens.tolist() == [3]
    kernel.run()
    assert request.num_output_tokens == 4


def test_output_does_not_depend_on_preemption() -> None:
    roomy, tight = MiniKernel(num_blocks=100), MiniKernel(num_blocks=6)
    for kernel in (roomy, tight):
        requests = [kernel.add(3 + index, max_tokens=9) for index in range(5)]
        kernel.run()
        if kernel is roomy:
            expected = [request.output_token_ids for request in requests]
    assert [request.output_token_ids for request in requests] == expected
    assert any(request.num_preemptions for request in requests)


def test_a_running_request_that_outgrows_the_whole_cache_fails_alone() -> None:
    kernel = MiniKernel(num_blocks=2)
    kernel.add(6, max_tokens=20, fits=False)
    behind = kernel.add(3, max_tokens=2)
    kernel.run()
    assert kernel.ended["r0"] is FinishReason.ERROR
    assert kernel.ended[behind.request_id] is FinishReason.LENGTH


def test_an_idle_scheduler_gives_an_empty_step() -> None:
    kernel = MiniKernel()
    output = kernel.step()
    assert output.num_rows == 0
    assert output.total_num_scheduled_tokens == 0
    assert output.samples.dtype == bool
