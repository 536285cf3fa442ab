"""States of requests, and their counts."""

from __future__ import annotations

import gc

from framework.conformance.suites.scheduler.base import (
    BOUND,
    SchedulerPart,
    assert_counts,
    assert_empty,
)
from framework.conformance.worlds.makers import PartMaker, kernel_around
from framework.core.request import Request
from hookspecs.types.request import FinishReason, RequestStatus
from hookspecs.types.step import SchedulerOutput

__all__ = ["States"]


class States(SchedulerPart):
    """Whatever state a request is in, it may be ended, counted and forgotten."""

    def test_abort_in_any_state(self, make: PartMaker) -> None:
        """Requires nothing.
        Does: aborts a request while it waits, while it runs, and while it is preempted.
        Must: drop it, run the others, and take a new one of the same id.
        """
        for state in (RequestStatus.WAITING, RequestStatus.RUNNING, RequestStatus.PREEMPTED):
            kernel = kernel_around(make, num_blocks=64)
            kernel.add(6, 4)
            victim = kernel.add(6, 30)
            if state is not RequestStatus.WAITING:
                kernel.step()
                kernel.step()
            if state is RequestStatus.PREEMPTED:
                kernel.scheduler.preempt_all()
            assert victim.status is state, f"the request is {victim.status.name}, not {state.name}"
            kernel.abort(victim)
            assert_counts(kernel)
            for _ in range(3):
                ran = kernel.schedule_of_next_step()
                assert victim.request_id not in ran, "an aborted request was scheduled"
            again = kernel.add(6, 2, request_id=victim.request_id)
            kernel.run(100)
            reason = kernel.ended[again.request_id]
            assert reason is FinishReason.LENGTH, f"the new one of its id ended by {reason!r}"
            assert_empty(kernel, f"after an abort while {state.name}")

    def test_counts_are_true(self, make: PartMaker) -> None:
        """Requires nothing.
        Does: compares num_waiting and num_running with the states of all requests, at every step.
        Must: count exactly those that hold a slot as running, all others as waiting.
        """
        kernel = kernel_around(make, max_num_seqs=3, num_blocks=20)
        assert_counts(kernel)
        for number in range(9):
            kernel.add(4 + number, 5)
            assert_counts(kernel)
        for step in range(BOUND):
            if not kernel.requests:
                break
            kernel.step()
            assert_counts(kernel)
            if step in (1, 4):
                kernel.scheduler.preempt_all()
                assert_counts(kernel)
        assert_empty(kernel, "after all have ended")

    def test_preempt_all(self, make: PartMaker) -> None:
        """Requires nothing: the kernel asks for it before it clears the cache.
        Does: preempts all, several times and twice in a row, with prompts half computed.
        Must: take slot and blocks from everyone, and let all come back and get the same tokens.
        """
        disturbed, quiet = (
            kernel_around(make, num_blocks=64, max_num_batched_tokens=16) for _ in range(2)
        )
        tokens = []
        for kernel in (disturbed, quiet):
            requests = [kernel.add(3 + 9 * number, 6) for number in range(5)]
            for _ in range(6 if kernel is disturbed else 0):
                kernel.step()
                kernel.step()
                for _ in range(2):
                    kernel.scheduler.preempt_all()
                    running = kernel.table.num_running
                    assert not running, f"preempt_all left {running} requests in their slots"
                    in_use = kernel.kv.blocks_in_use()
                    assert not in_use, f"preempt_all left {in_use} blocks in use"
                    assert_counts(kernel)
                assert kernel.kv.reset_prefix_cache(), "the cache can not be reset"
            kernel.run(BOUND)
            tokens.append([request.output_token_ids for request in requests])
        assert tokens[0] == tokens[1], "preempt_all changed the tokens of requests"

    def test_an_idle_step_is_empty(self, make: PartMaker) -> None:
        """Requires nothing.
        Does: asks for steps before there is a request, and after the last has ended.
        Must: give an output without rows, blocks and new requests.
        """
        kernel = kernel_around(make)
        outputs: list[SchedulerOutput] = []
        for _ in range(2):
            outputs += [kernel.step(), kernel.step()]
            kernel.add(3, 1)
            kernel.run(10)
        for output in outputs:
            assert output.num_rows == 0 and not output.new_requests, f"an idle step has {output}"
            assert not any(len(columns.slots) for columns in output.new_blocks), (
                "an idle step appends blocks"
            )

    def test_requests_that_ended_are_forgotten(self, make: PartMaker) -> None:
        """Requires nothing.
        Does: lets requests end in all ways.
        Must: keep no reference to them: an engine serves millions.
        """
        kernel = kernel_around(make, num_blocks=12, max_num_seqs=3)
        for number in range(12):
            kernel.add(3 + number, 4, request_id=f"forget-{number}")
        kernel.step()
        kernel.scheduler.preempt_all()
        for number in (0, 11):
            kernel.abort(kernel.requests[f"forget-{number}"])
        kernel.run(BOUND)
        kernel.add(3, 1)
        kernel.run(BOUND)
        gc.collect()
        kept = [
            each.request_id
            for each in gc.get_objects()
            if isinstance(each, Request) and each.request_id.startswith("forget-")
        ]
        assert not kept, f"requests that ended are still referenced: {sorted(kept)}"
