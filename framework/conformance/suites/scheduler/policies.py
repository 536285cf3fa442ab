"""What the scheduling policies say."""

from __future__ import annotations

import random

from framework.conformance.suites.scheduler.base import BOUND, SchedulerPart, assert_empty
from framework.conformance.worlds.makers import PartMaker, kernel_around
from framework.conformance.worlds.told_policy import MovingPolicy, TenantPolicy, ToldPolicy
from hookspecs.types.request import FinishReason, RequestStatus

__all__ = ["Policies"]


class Policies(SchedulerPart):
    """Policies are asked and told at the right time, and decide."""

    def test_requests_start_in_order(self, make: PartMaker, told: ToldPolicy, seed: int) -> None:
        """Requires nothing.
        Does: queues equally long requests of random priorities, with room for some each step.
        Must: start them in the order of their keys.
        """
        kernel = kernel_around(
            make, policies=[told], num_blocks=64, max_num_seqs=3, max_num_batched_tokens=8
        )
        rng = random.Random(seed)
        requests = [kernel.add(4, rng.randint(1, 5), priority=rng.randint(0, 3)) for _ in range(16)]
        order = [r.request_id for r in sorted(requests, key=lambda r: (r.priority, r.arrival))]
        started: set[str] = set()
        for _ in range(BOUND):
            if not kernel.requests:
                return
            started |= kernel.schedule_of_next_step().keys()
            expected = order[: len(started)]
            assert started == set(expected), (
                f"started {sorted(started - set(expected))} before "
                f"{sorted(set(expected) - started)}, which come first in the order"
            )
        raise AssertionError(f"{len(kernel.requests)} requests still there after {BOUND} steps")

    def test_keys_are_asked_for_when_queued(self, make: PartMaker, told: ToldPolicy) -> None:
        """Requires nothing.
        Does: counts how often a policy without dynamic_order is asked for keys.
        Must: ask once when a request is queued, and again when it was preempted.
        """
        kernel = kernel_around(make, policies=[told], max_num_seqs=2, num_blocks=64)
        requests = [kernel.add(3, 6) for _ in range(4)]
        for _ in range(3):
            kernel.step()
        wrong = {r.request_id: told.keys[r.request_id] for r in requests}
        assert set(wrong.values()) == {1}, f"keys were asked for so often, not once each: {wrong}"
        kernel.scheduler.preempt_all()
        for _ in range(2):
            kernel.step()
        again = {r.request_id: told.keys[r.request_id] - r.num_preemptions for r in requests}
        assert set(again.values()) == {1}, (
            f"keys were asked for so often, preemptions not counted, and not once each: {again}"
        )

    def test_moving_keys_are_asked_for_anew(self, make: PartMaker) -> None:
        """Requires nothing.
        Does: changes what a policy with dynamic_order answers while requests wait.
        Must: start them in the order that the keys have now.
        """
        moving = MovingPolicy()
        kernel = kernel_around(make, policies=[moving], max_num_seqs=1, num_blocks=64)
        kernel.add(3, 3, priority=-1)
        first, second = kernel.add(3, 1, priority=0), kernel.add(3, 1, priority=1)
        kernel.step()
        moving.ranks = {first.request_id: 9, second.request_id: 8}
        kernel.run(BOUND)
        ended = [name for name in kernel.ended if name != "r0"]
        assert ended == [second.request_id, first.request_id], (
            f"{ended} ran in this order, that of the keys which they had when queued"
        )

    def test_groups_keep_to_the_order(self, make: PartMaker, seed: int) -> None:
        """Requires nothing.
        Does: queues requests of four tenants, which are the groups of a policy with dynamic_order,
        and changes the tenants' order at every step; some requests are held back, aborted, or
        preempted.
        Must: start who is first by the keys of the step; a group spares questions, not its place.
        """
        tenants, rng = [f"tenant {number}" for number in range(4)], random.Random(seed)
        told = TenantPolicy()
        kernel = kernel_around(make, policies=[told], max_num_seqs=1, num_blocks=64)
        for step in range(200):
            if step < 60:
                kernel.add(3, rng.randint(1, 3), tenant=rng.choice(tenants))
            if rng.random() < 0.1 and kernel.requests:
                kernel.abort(rng.choice(list(kernel.requests.values())))
            if rng.random() < 0.2:
                kernel.scheduler.preempt_all()
            told.ranks = {tenant: rng.randrange(1000) for tenant in tenants}
            told.held = {name for name in kernel.requests if rng.random() < 0.2}
            running = {name for name, each in kernel.requests.items() if each.slot >= 0}
            waiting = [each for name, each in kernel.requests.items() if name not in told.held]
            order = sorted(waiting, key=lambda request: told.order_key(request, kernel.view))
            expected = running or {request.request_id for request in order[:1]}
            ran = set(kernel.schedule_of_next_step())
            assert ran == expected, (
                f"{sorted(ran)} ran at step {step}, not {sorted(expected)}, first of the order of "
                f"the tenants {sorted(told.ranks, key=told.ranks.__getitem__)}, preempted ones "
                f"first, then by arrival: {[(r.request_id, r.tenant) for r in order[:5]]}"
            )
        assert_empty(kernel, "after turns of tenants")

    def test_preempted_requests_come_first(self, make: PartMaker, told: ToldPolicy) -> None:
        """Requires nothing.
        Does: preempts all of those that run while others wait, all of one priority.
        Must: let the preempted ones come back first, as their keys say.
        """
        kernel = kernel_around(make, policies=[told], max_num_seqs=2, num_blocks=64)
        kernel.add(3, 1)
        kernel.step()
        ahead = [kernel.add(3, 9, priority=1) for _ in range(2)]
        kernel.step()
        late = [kernel.add(3, 9, priority=1) for _ in range(2)]
        told.ranks = dict.fromkeys([r.request_id for r in [*ahead, *late]], 0)
        kernel.scheduler.preempt_all()
        ran = set(kernel.schedule_of_next_step())
        assert ran == {request.request_id for request in ahead}, (
            f"after preempt_all {sorted(ran)} ran, and not those that were preempted"
        )

    def test_who_is_held_back_holds_back_nobody(self, make: PartMaker, told: ToldPolicy) -> None:
        """Requires nothing.
        Does: lets a policy answer WAIT for the first requests of the queue, then admit them.
        Must: not start them, consider those behind them, and start them once they are admitted.
        """
        kernel = kernel_around(make, policies=[told], max_num_seqs=4, num_blocks=64)
        held = [kernel.add(3, 2) for _ in range(3)]
        free = [kernel.add(3, 2) for _ in range(2)]
        told.held = {request.request_id for request in held}
        for _ in range(8):
            ran = set(kernel.schedule_of_next_step())
            assert not ran & told.held, f"{sorted(ran & told.held)} ran, which a policy held back"
        waiting = [r.request_id for r in free if r.status is RequestStatus.WAITING]
        assert not waiting, f"{waiting} did not start, behind others that are held back"
        told.held = set()
        kernel.run(100)
        assert all(kernel.ended[r.request_id] is FinishReason.LENGTH for r in held)

    def test_expired_requests_end_with_timeout(self, make: PartMaker, told: ToldPolicy) -> None:
        """Requires nothing.
        Does: lets a policy name waiting requests as late, one of them twice, with room to start.
        Must: end them with `timeout` before they run, asking once a step, and nobody else.
        """
        kernel = kernel_around(make, policies=[told], num_blocks=64)
        late, fine = [kernel.add(3, 2) for _ in range(2)], kernel.add(3, 2)
        told.late = [late[0].request_id, late[1].request_id, late[0].request_id]
        ran = kernel.schedule_of_next_step()
        assert told.expire_calls == 1, f"expire was asked {told.expire_calls} times in a step"
        assert set(ran) == {fine.request_id}, f"{sorted(ran)} ran; {told.late} are late"
        for request in late:
            reason = kernel.ended.get(request.request_id)
            assert reason is FinishReason.TIMEOUT, (
                f"{request.request_id} was named by expire, and ended with {reason!r}"
            )
        kernel.run(100)
        assert_empty(kernel, "after a timeout")

    def test_what_does_not_wait_does_not_expire(self, make: PartMaker, told: ToldPolicy) -> None:
        """Requires nothing.
        Does: lets a policy name a request that runs, one that has ended and one that never was.
        Must: ignore all three.
        """
        kernel = kernel_around(make, policies=[told], num_blocks=64)
        done = kernel.add(3, 1)
        kernel.step()
        running = kernel.add(3, 4)
        kernel.step()
        told.late = [running.request_id, done.request_id, "nobody"]
        kernel.run(100)
        reason = kernel.ended[running.request_id]
        assert reason is FinishReason.LENGTH, f"expire named a request that ran: {reason!r}"

    def test_policies_hear_how_requests_end(self, make: PartMaker, told: ToldPolicy) -> None:
        """Requires nothing.
        Does: lets requests end by their length, an abort, a failure and a timeout.
        Must: pass each end on to the policies, once, with its reason.
        """
        kernel = kernel_around(make, policies=[told], num_blocks=64, max_num_seqs=3)
        kernel.add(3, 2)
        failing, aborted, late = (kernel.add(3, 9) for _ in range(3))
        kernel.step()
        kernel.step(fail=[failing])
        kernel.abort(aborted)
        told.late = [late.request_id] if late.status is RequestStatus.WAITING else []
        kernel.run(100)
        expected = sorted(kernel.ended.items())
        assert sorted(told.finished) == expected, (
            f"policies were told {sorted(told.finished)}; requests ended as {expected}"
        )
